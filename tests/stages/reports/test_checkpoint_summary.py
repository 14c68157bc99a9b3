"""Means over problems, gains paired with the start, and which step is the best."""

import pytest

from stages.records.checkpoint_result import CheckpointResult
from stages.reports import checkpoint_summary

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
    found = checkpoint_summary.summarise(ROWS, **SETTINGS)
    assert found["num_problems"] == 2
    assert list(found["steps"]) == ["0", "4", "8"]
    last = found["steps"]["8"]
    assert last["correct"]["value"] == 1.0
    assert last["reward_model"]["value"] == 5.5
    # 2 and 5 more than at the start
    assert last["reward_model_gain"] == {"value": 3.5, "low": 2.0, "high": 5.0}
    assert last["correct_gain"]["value"] == 0.5
    assert found["steps"]["0"]["correct_gain"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert last["kl_k1"]["value"] == 0.8
    assert last["ensemble"] is last["ensemble_gain"] is last["ensemble_std"] is None


def test_of_equally_accurate_steps_the_first_is_the_best():
    assert checkpoint_summary.summarise(ROWS, **SETTINGS)["best_step"] == 4


@pytest.mark.parametrize("rows", [ROWS[2:], ROWS[:-1], [*ROWS[:4], ROWS[5], ROWS[4]]])
def test_steps_of_other_problems_or_without_a_start_are_refused(rows):
    with pytest.raises(ValueError, match="Rerun evaluate_checkpoints"):
        checkpoint_summary.summarise(rows, **SETTINGS)
