import math

import pytest
import torch
from tiny_checkpoints import EOS, PAD, compute, load

from stages.models.policy import Policy
from stages.models.scalar_head import Scores
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.studies import checkpoint_measures
from stages.studies.checkpoint_measures import CheckpointResult

TEMPERATURE = 0.7
IDS = {"right": [5, 6, 5, 6, 5, 6, EOS], "wrong": [9, EOS], "cut": [7, 8, 7]}
TEXTS = {"right": "#### 4", "wrong": "#### 5", "cut": "no"}


def prompt(name):
    return Prompt(
        id=name, task="solve", question="q", prompt="p", prompt_ids=[3, 4, int(name)], answer="4"
    )


def completions(name, kinds):
    return [
        Completion(
            id=name,
            index=index,
            completion=TEXTS[kind],
            completion_ids=IDS[kind],
            logprob_sum=0.0,
            finish_reason="length" if kind == "cut" else "stop",
            seed=0,
        )
        for index, kind in enumerate(kinds)
    ]


def pools(*kinds):
    return [(prompt(str(i)), completions(str(i), kind)) for i, kind in enumerate(kinds, start=5)]


class Lengths:
    """Scores a completion by its length, and counts what it reads."""

    def __init__(self):
        self.read = 0

    def __call__(self, groups):
        lengths = torch.tensor([float(len(ids)) for group in groups for ids in group.completions])
        self.read += len(lengths)
        return Scores(values=lengths, disagreement=lengths / 10)


def plainly(model, prompt_ids, ids):
    """log p and entropy of each token of one completion, alone."""
    with torch.no_grad():
        logits = model.eval()(torch.tensor([prompt_ids + ids])).logits[0] / TEMPERATURE
    logprobs = logits.log_softmax(-1)[len(prompt_ids) - 1 : -1]
    return logprobs.gather(1, torch.tensor(ids)[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(1)


def measured(model, judges, *kinds):
    reference, scorers = judges
    return checkpoint_measures.measure_checkpoint(
        Policy(model, compute(), PAD), Policy(reference), scorers, pools(*kinds),
        step=3, temperature=TEMPERATURE,
    )  # fmt: skip


def test_everything_by_hand():
    model, reference, scorer = load("llama", seed=1), load("llama", seed=2).eval(), Lengths()
    judges = reference, (scorer, scorer)
    kinds = ["right", "wrong", "right", "cut"]
    (row, other) = measured(model, judges, kinds, ["wrong"] * 4)
    k1, k3, entropy = [], [], []
    for kind in kinds:
        logprobs, entropies = plainly(model, [3, 4, 5], IDS[kind])
        ref, _ = plainly(reference, [3, 4, 5], IDS[kind])
        ratio = (ref - logprobs).tolist()
        k1.append(-sum(ratio))
        k3.append(sum(math.exp(min(item, 20.0)) - 1 - min(item, 20.0) for item in ratio))
        entropy.append(entropies.sum().item())
    assert row.kl_k1 == pytest.approx(sum(k1) / 4, rel=1e-4)
    assert row.kl_k3 == pytest.approx(sum(k3) / 4, rel=1e-4)
    assert row.tokens == (7 + 2 + 7 + 3) / 4
    assert row.entropy == pytest.approx(sum(entropy) / 19, rel=1e-4)
    assert row.reward_model == row.ensemble == row.tokens
    assert row.ensemble_std == pytest.approx(row.tokens / 10)
    assert (row.correct, row.truncated, row.num_distinct) == (0.5, 0.25, 3)
    # of its four runs of four tokens 5656 and 6565 are two, each once more; then 656E
    assert row.repetition == pytest.approx((2 * 1 / 4) / 4)
    assert (row.step, row.id, other.id, other.correct) == (3, "5", "6", 0.0)
    # three distinct completions and one, each read once by each of the two
    assert scorer.read == 2 * (3 + 1)


def test_the_start_has_not_moved_and_nobody_scores():
    model = load("llama", seed=1)
    judges = load("llama", seed=1).eval(), (None, None)
    (row,) = measured(model, judges, ["right", "cut"])
    assert row.kl_k1 == row.kl_k3 == 0.0
    assert row.reward_model is row.ensemble is row.ensemble_std is None


def test_k1_and_k3_agree_in_the_mean_over_what_the_policy_draws():
    # every completion of one token, weighed as the policy draws it: both are then the KL itself
    model, reference = load("llama", seed=1), load("llama", seed=2).eval()
    logprobs = torch.stack(
        [plainly(model, [3, 4, 5], [token])[0][0] for token in range(2, model.config.vocab_size)]
    )
    refs = torch.stack([plainly(reference, [3, 4, 5], [token])[0][0] for token in range(2, 32)])
    counts = (logprobs.exp() * 20_000).round().long().tolist()
    expected = float((logprobs.exp() * (logprobs - refs)).sum())
    rows = [
        Completion(
            id="5", index=0, completion="no", completion_ids=[token], logprob_sum=0.0,
            finish_reason="stop", seed=0,
        )
        for token, count in enumerate(counts, start=2)
        for _ in range(count)
    ]  # fmt: skip
    (row,) = checkpoint_measures.measure_checkpoint(
        Policy(model, compute(), PAD),
        Policy(reference),
        (None, None),
        [(prompt("5"), rows)],
        step=0,
        temperature=TEMPERATURE,
    )
    shares = logprobs.exp().sum().item()
    assert shares > 0.95, "tokens 0 and 1 would matter"
    assert row.kl_k1 == pytest.approx(expected / shares, rel=0.02, abs=0.02)


SETTINGS = {"num_resamples": 200, "confidence": 0.95, "seed": 0}


def row(step, name, correct, score=0.0, ensemble=None):
    return CheckpointResult(
        step=step, id=name, correct=correct, reward_model=score, ensemble=ensemble,
        ensemble_std=None if ensemble is None else 0.5, kl_k1=0.1 * step, kl_k3=0.2 * step,
        tokens=10.0, entropy=0.3, truncated=0.0, repetition=0.25, num_distinct=2,
    )  # fmt: skip


ROWS = [
    row(0, "a", 0.0, 1.0), row(0, "b", 1.0, 3.0),
    row(4, "a", 1.0, 2.0), row(4, "b", 1.0, 4.0),
    row(8, "a", 1.0, 3.0), row(8, "b", 1.0, 8.0),
]  # fmt: skip


def test_by_hand():
    result = checkpoint_measures.summarise_checkpoints(ROWS, **SETTINGS)
    assert result["num_problems"] == 2
    assert list(result["steps"]) == ["0", "4", "8"]
    last = result["steps"]["8"]
    assert last["correct"]["value"] == 1.0
    assert last["reward_model"]["value"] == 5.5
    # 2 and 5 more than at the start
    assert last["reward_model_gain"] == {"value": 3.5, "low": 2.0, "high": 5.0}
    assert last["correct_gain"]["value"] == 0.5
    assert result["steps"]["0"]["correct_gain"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert last["kl_k1"]["value"] == 0.8
    assert last["ensemble"] is last["ensemble_gain"] is last["ensemble_std"] is None


def test_of_equally_accurate_steps_the_first_is_the_best():
    assert checkpoint_measures.summarise_checkpoints(ROWS, **SETTINGS)["best_step"] == 4


@pytest.mark.parametrize("rows", [ROWS[2:], ROWS[:-1], [*ROWS[:4], ROWS[5], ROWS[4]]])
def test_steps_of_other_problems_or_without_a_start_are_refused(rows):
    with pytest.raises(ValueError, match="Rerun the study checkpoints"):
        checkpoint_measures.summarise_checkpoints(rows, **SETTINGS)
