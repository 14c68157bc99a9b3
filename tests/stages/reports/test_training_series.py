"""Quantities of a training run."""

from stages.reports import training_series
from stages.reports.group_signal import GroupPoint
from stages.reports.learning_curve import CurvePoint

JOURNAL = [(0, {"kl/k1": 0.0, "optim/grad_norm": 3.0}), (1, {"kl/k1": 0.5, "loss/policy": 1.0})]


def test_a_journal_by_name():
    assert training_series.by_name(JOURNAL) == {
        "kl/k1": [(0, 0.0), (1, 0.5)],
        "loss/policy": [(1, 1.0)],
        "optim/grad_norm": [(0, 3.0)],
    }
    assert list(training_series.of_journal(JOURNAL)) == ["kl/k1", "loss/policy"]


def test_what_was_never_measured_is_left_out():
    curve = [CurvePoint(step=0, num_rollouts=1, reward=2.0, accuracy=0.5, tokens=3.0,
                        truncation_rate=0.0)]  # fmt: skip
    groups = [GroupPoint(step=0, num_groups=1, within_variance=None, flat_share=None,
                         all_right=0.5, all_wrong=0.25, repetition=0.125)]  # fmt: skip
    found = training_series.of_rollouts(curve, groups, JOURNAL)
    assert found["reward"] == [(0, 2.0)]
    assert found["KL to reference, nats/token"] == [(0, 0.0), (1, 0.5)]
    assert found["repeated 4-grams"] == [(0, 0.125)]
    assert not {"groups without a signal", "entropy, nats/token"} & set(found)
