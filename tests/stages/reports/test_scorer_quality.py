import numpy as np
import pytest

from stages.records.verdicts import Verdicts
from stages.reports import scorer_quality
from stages.reports.problem_interval import QualityConfig

CONFIG = QualityConfig(
    num_bins=2,
    binning="equal_mass",
    length_tolerance=1,
    length_edges=[0],
    num_bootstrap=200,
    confidence=0.95,
)


def make(*problems):
    """(verdicts as + and -, accuracy of the majority)."""
    return [
        Verdicts(id=f"p{number}", right=[one == "+" for one in text], majority=majority)
        for number, (text, majority) in enumerate(problems)
    ]


def test_the_best_of_the_whole_pool_against_one_sample_and_the_majority():
    verdicts = make(("++-", 1.0), ("+--", 0.0))
    found = scorer_quality.measure(verdicts, [[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]], CONFIG, seed=0)
    assert found["best_of"]["value"] == 0.5
    assert found["auc"]["value"] == 0.5  # 0 and 1
    assert found["best_of_minus_mean"]["value"] == pytest.approx(0.0)  # -2/3 and 2/3
    assert found["best_of_minus_majority"] == {"value": 0.0, "low": -1.0, "high": 1.0}


def test_problems_of_one_class_count_for_the_choice_and_not_for_the_area():
    verdicts = make(("++", 1.0), ("--", 0.0), ("+-", 0.5))
    found = scorer_quality.measure(verdicts, [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], CONFIG, seed=0)
    assert found["problems_with_both"] == 1
    assert found["best_of"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    none = scorer_quality.measure(verdicts[:2], [[0.0, 1.0], [1.0, 0.0]], CONFIG, seed=0)
    assert none["auc"] is None


def test_a_difference_is_paired_and_so_surer_than_its_parts():
    stream = np.random.default_rng(0)
    problems = [(("+" * k).ljust(8, "-"), k / 8) for k in stream.integers(0, 9, 200)]
    verdicts = make(*problems)
    scores = [[0.0] * 8 for _ in problems]  # a random choice
    found = scorer_quality.measure(verdicts, scores, CONFIG, seed=0)
    assert found["best_of_minus_mean"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert found["best_of"]["high"] - found["best_of"]["low"] > 0.05


def test_baselines_need_no_scores():
    found = scorer_quality.baselines(make(("++-", 1.0), ("+--", 0.0)), CONFIG, seed=0)
    assert (found["num_problems"], found["num_samples"]) == (2, 3)
    assert (found["mean"]["value"], found["majority"]["value"]) == (0.5, 0.5)
