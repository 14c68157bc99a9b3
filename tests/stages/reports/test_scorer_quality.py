import numpy as np
import pytest

from stages.reports import scorer_quality
from stages.reports.problem_interval import QualityConfig
from stages.rewards.pool_scores import PoolScores

CONFIG = QualityConfig(
    num_bins=2,
    binning="equal_mass",
    length_tolerance=1,
    length_edges=[0],
    num_bootstrap=200,
    confidence=0.95,
)
TABLES = ("accuracy_at", "minus_mean", "minus_majority")
VALUE = {"value": 0.5, "low": 0.25, "high": 0.75}
METHODS = {name: {"1": {}, "2": VALUE} for name in ("majority", "best_of/x", "weighted/x")}
AS_FORMAT = {"best_of/format": {"2": VALUE}, "weighted/format": {"2": VALUE}}
EVALUATION = {
    "num_problems": 2,
    "num_samples": 3,
    "mean_accuracy": VALUE,
    "accuracy_at": METHODS,
    "minus_mean": METHODS,
    "minus_majority": METHODS,
}


def view(values):
    return PoolScores(values=np.array(values, dtype=np.float64), weights=None)


def measure(right, values, evaluation=EVALUATION, kept=None):
    kept = kept or [[1] * len(v) for v in values]
    scores = [{"x": view(v), "format": view(k)} for v, k in zip(values, kept, strict=True)]
    evaluation = evaluation | {key: evaluation[key] | AS_FORMAT for key in TABLES}
    verdicts = [[one == "+" for one in text] for text in right]
    return scorer_quality.measure(verdicts, scores, evaluation, CONFIG, seed=0)["scorers"]["x"]


def test_the_area_is_of_each_problem_and_accuracies_are_those_at_the_largest_n():
    found = measure(["++-", "+--"], [[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]])
    assert found["auc"]["value"] == 0.5  # 0 and 1
    assert found["best_of"] == found["weighted_minus_majority"] == VALUE


def test_problems_of_one_class_do_not_count_for_the_area():
    found = measure(["++", "--", "+-"], [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert found["problems_with_both"] == 1
    assert found["auc"]["value"] == 1.0
    assert measure(["++", "--"], [[0.0, 1.0], [1.0, 0.0]])["auc"] is None


def test_a_scorer_without_weights_has_no_vote():
    bare = {key: value for key, value in METHODS.items() if key != "weighted/x"}
    found = measure(["+-"], [[1.0, 0.0]], EVALUATION | {"accuracy_at": bare})
    assert found["weighted"] is found["weighted_minus_majority"] is None


def test_in_the_format_only_those_that_keep_it_are_compared():
    # The scores tell 3 and 2, which keep the format, from the rest, and them the wrong way round.
    found = measure(["+-+--"], [[2.0, 3.0, 0.0, 1.0, 0.5]], kept=[[1, 1, 0, 0, 0]])
    assert found["auc"]["value"] == pytest.approx(2 / 6, abs=1e-6)
    assert found["auc_in_format"]["value"] == 0.0
