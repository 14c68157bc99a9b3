import math

import pytest
import torch
from tiny_checkpoints import CPU, EOS, PAD, checkpoint, compute, exact, random_ids
from tiny_rollouts import OPTIM, assert_same_gradients, watch_gradients

from stages.loops import process_reward
from stages.loops.process_reward import ProcessRewardConfig
from stages.models import process_head
from stages.models.process_head import ProcessHead, TokenizedSolution
from stages.records.steps import StepLabels

STEP = 2
LABELS = [[1.0, 0.5], [0.0], [1.0, None, 0.25], [None], [0.75, 0.0, 0.0, 1.0]]


def make_rows(labels=LABELS):
    """The first three of one problem."""
    generator = torch.Generator().manual_seed(0)
    prompts = [random_ids(generator, 4), random_ids(generator, 6)]
    return [
        StepLabels(
            id="ab"[number > 2],
            index=number,
            prompt="",
            prompt_ids=prompts[number > 2],
            steps=["x"] * len(item),
            step_ids=[
                [*random_ids(generator, 1 + place), *([EOS] if place == len(item) - 1 else [])]
                for place in range(len(item))
            ],
            labels=item,
            num_completions=[4] * len(item),
            true_labels=None,
            correct=None,
            source="math_shepherd",
        )
        for number, item in enumerate(labels)
    ]


ROWS = make_rows()


def make_model():
    model = exact(process_head.init_process_model(checkpoint("llama"), STEP, compute(), CPU))
    generator = torch.Generator().manual_seed(1)
    for parameter in process_head.get_head(model).parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return model


def config(**changes):
    given = {
        "targets": {"kind": "soft"},
        "up_to_first_error": False,
        "num_epochs": 1,
        "batch_size": 2,
        "optim": OPTIM,
    }
    return ProcessRewardConfig(**(given | changes))


def gradient_of(monkeypatch, rows=ROWS, chosen=None, **changes):
    seen = watch_gradients(monkeypatch)
    chosen = list(range(len(rows))) if chosen is None else chosen
    (step,) = process_reward.train(
        ProcessHead(make_model(), compute(), PAD), rows, [chosen], config(**changes)
    )
    return step.metrics, seen[0]


def plain_loss(model, rows, target=lambda label: label):
    """Cross-entropy of every label, one step at a time, over their number."""
    losses = []
    for row in rows:
        ids = list(row.prompt_ids)
        for step, label in zip(row.step_ids, row.labels, strict=True):
            ids += [*step, STEP]
            if label is not None:
                logits = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
                p = target(label)
                losses.append(-p * logits[1] - (1 - p) * logits[0])
    return torch.stack(losses).mean()


def test_the_gradient_is_that_of_the_mean_over_the_labelled_steps(monkeypatch):
    metrics, actual = gradient_of(monkeypatch)
    model = make_model()
    loss = plain_loss(model, ROWS)
    loss.backward()
    # As the optimizer numbers them: matrices first.
    ordered = sorted(model.parameters(), key=lambda parameter: parameter.ndim < 2)
    expected = {str(n): p.grad for n, p in enumerate(ordered) if p.grad is not None}
    assert metrics["loss/step_labels"] == pytest.approx(loss.item(), rel=1e-9)
    assert metrics["steps/labelled"] == 9
    assert_same_gradients(actual, expected)


def test_hard_targets_are_those_of_the_threshold(monkeypatch):
    metrics, _ = gradient_of(monkeypatch, targets={"kind": "hard", "threshold": 0.25})
    expected = plain_loss(make_model(), ROWS, target=lambda label: float(label > 0.25))
    assert metrics["loss/step_labels"] == pytest.approx(expected.item(), rel=1e-9)


def test_up_to_the_first_error_counts_fewer_steps(monkeypatch):
    metrics, _ = gradient_of(monkeypatch, up_to_first_error=True)
    # 1 .5 | 0 | 1 - .25 | - | .75 0
    assert metrics["steps/labelled"] == 7


def test_a_solution_without_labels_changes_nothing(monkeypatch):
    _, result = gradient_of(monkeypatch)
    _, without = gradient_of(monkeypatch, chosen=[0, 1, 2, 4])
    assert_same_gradients(result, without)


def test_from_a_new_head_the_loss_is_log_2():
    model = process_head.init_process_model(checkpoint("llama"), STEP, compute(), CPU)
    (step,) = process_reward.train(ProcessHead(model, compute(), PAD), ROWS, [[0, 1, 2]], config())
    assert step.metrics["loss/step_labels"] == pytest.approx(math.log(2), rel=1e-5)


def test_it_learns_which_steps_are_right_and_soft_labels_as_they_are():
    model = process_head.init_process_model(checkpoint("llama"), STEP, compute(), CPU)
    rows = make_rows([[1.0, 0.5], [0.0], [1.0, 0.0], [0.25]])
    steps = list(
        process_reward.train(
            ProcessHead(model, compute(), PAD), rows, [[0, 1, 2, 3]] * 120, config()
        )
    )
    solutions = [TokenizedSolution(prompt_ids=r.prompt_ids, steps=r.step_ids) for r in rows]
    scores = process_head.score_steps(ProcessHead(model, compute(), PAD), solutions)
    flat = [score for item in scores for score in item]
    assert flat == pytest.approx([1.0, 0.5, 0.0, 1.0, 0.0, 0.25], abs=0.05)
    assert steps[-1].metrics["steps/accuracy"] == 1.0


def test_an_optimizer_step_without_a_label_is_refused():
    steps = process_reward.train(
        ProcessHead(make_model(), compute(), PAD), ROWS, [[0], [3]], config()
    )
    next(steps)
    with pytest.raises(ValueError, match="optimizer step 1: none of its 1 solutions"):
        next(steps)


def test_labels_that_do_not_fit_and_rows_that_are_too_long_are_refused_before_anything_is_learned():
    model = ProcessHead(make_model(), compute(), PAD)
    with pytest.raises(ValueError, match="from 0 to 1"):
        next(process_reward.train(model, make_rows([[1.0], [2.0]]), [[0]], config()))
    long = make_rows([[1.0], [1.0] * 16])
    with pytest.raises(ValueError, match=r"none of .* is cut"):
        next(process_reward.train(model, long, [[0]], config()))


def test_a_problems_solutions_are_learned_from_together_and_each_once_an_epoch():
    settings = config(num_epochs=3, batch_size=1)
    result = process_reward.schedule_steps(ROWS, settings, seed=0)
    assert sorted(map(sorted, result)) == [[0, 1, 2]] * 3 + [[3, 4]] * 3
    assert process_reward.schedule_steps(ROWS, settings, seed=0) == result
