import math
from dataclasses import replace

import pytest
import torch
from tiny_checkpoints import CPU, EOS, PAD, checkpoint, compute, random_ids
from tiny_rollouts import OPTIM, watch_gradients

from stages.loops import epochs, reward
from stages.loops.reward import OutcomeConfig
from stages.models import scalar_head
from stages.models.scalar_head import ScalarHead
from stages.records.preferences import Outcome


def make_problems(number):
    """Right completions hold even tokens, wrong ones odd tokens; numbers of both differ."""
    generator = torch.Generator().manual_seed(3)
    problems = []
    for i in range(number):
        prompt = random_ids(generator, 2 + i % 4)
        sides = {True: 1 + i % 3, False: 1 + i % 2}
        problems.append(
            [
                Outcome(
                    id=f"q{i}",
                    prompt_ids=prompt,
                    completion_ids=[
                        *(2 * (token // 2) + (not right) for token in random_ids(generator, 3)),
                        EOS,
                    ],
                    right=right,
                    weight=0.5 / count,
                )
                for right, count in sides.items()
                for _ in range(count)
            ]
        )
    return problems


PROBLEMS = make_problems(6)
ONE_STEP = [list(range(6))]


def load(family="llama", head=0.0):
    model = scalar_head.init_scalar_model(checkpoint(family), PAD, compute(), CPU)
    generator = torch.Generator().manual_seed(1)
    torch.nn.init.normal_(model.score.weight, std=head, generator=generator)
    return model


def train(model, schedule, settings=None, *, problems=PROBLEMS):
    config = OutcomeConfig(
        max_per_problem=4, one_class_weight=0.0, num_epochs=1, batch_size=6, optim=OPTIM
    )
    return list(
        reward.train_outcomes(
            ScalarHead(model, settings or compute(), PAD), problems, schedule, config
        )
    )


def score_outcomes(model, problems, settings, pad_id):
    groups = reward.make_problem_groups(problems, settings.row_tokens)
    return reward.score(ScalarHead(model, settings, pad_id), groups)


def test_from_a_zero_head_the_loss_is_log_2():
    (step,) = train(load(), ONE_STEP)
    assert step.metrics["loss/outcome"] == pytest.approx(math.log(2))
    for name in ("accuracy", "probability"):
        assert step.metrics[f"outcomes/{name}"] == pytest.approx(0.5)
    assert step.metrics["tokens/trained"] == 4 * sum(map(len, PROBLEMS))


def test_the_loss_is_the_weighted_cross_entropy_of_the_scores():
    model = load(head=0.5)
    scores = score_outcomes(model, PROBLEMS, compute(), PAD)
    rows = [row for problem in PROBLEMS for row in problem]
    losses = [
        math.log1p(math.exp(-score if row.right else score))
        for row, score in zip(rows, scores.tolist(), strict=True)
    ]
    expected = sum(row.weight * loss for row, loss in zip(rows, losses, strict=True)) / 6
    (step,) = train(model, ONE_STEP)
    assert step.metrics["loss/outcome"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("mixed", [[], PROBLEMS[1:2]], ids=["alone", "beside both classes"])
def test_a_problem_of_one_class_weighs_its_share_whatever_else_is_in_the_step(mixed, monkeypatch):
    seen, losses = watch_gradients(monkeypatch), []
    one_class = [[row for row in problem if row.right] for problem in PROBLEMS[3:]]
    for weight in (1.0, 0.5, 0.25):
        weighted = [[replace(row, weight=weight / len(rows)) for row in rows] for rows in one_class]
        problems = [*weighted, *mixed]
        (step,) = train(load(head=0.5), [[*range(len(problems))]], problems=problems)
        losses.append(step.metrics["loss/outcome"])
    # On a line over the weight.
    assert losses[2] == pytest.approx(1.5 * losses[1] - 0.5 * losses[0])
    assert losses[1] < 0.9 * losses[0]
    for name, gradient in seen[2].items():
        expected = 1.5 * seen[1][name] - 0.5 * seen[0][name]
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_scores_are_in_the_order_of_the_completions_however_they_are_batched():
    model = load(head=0.5)
    together = score_outcomes(model, PROBLEMS, compute(), PAD)
    alone = torch.cat([
        score_outcomes(model, [[row]], compute(max_tokens=1), PAD)
        for problem in PROBLEMS for row in problem
    ])  # fmt: skip
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_even_tokens_are_told_from_odd_ones_in_completions_never_seen():
    problems = make_problems(48)
    model = load()
    train(model, epochs.batches(32, 15, 8, seed=0), problems=problems[:32])
    rows = [row for problem in problems[32:] for row in problem]
    scores = score_outcomes(model, problems[32:], compute(), PAD)
    right = torch.tensor([row.right for row in rows])
    assert ((scores > 0) == right).float().mean().item() >= 0.9
