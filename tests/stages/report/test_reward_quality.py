import dataclasses
import math

import numpy as np
import pytest
from tiny_rollouts import make_pairs

from stages.records.preferences import Outcome
from stages.report import reward_quality
from stages.report.evaluation_config import QualityConfig

CONFIG = QualityConfig(
    num_bins=2,
    length_tolerance=1,
    length_edges=[-1, 2],
    num_bootstrap=200,
    confidence=0.95,
)


def pairs(*rows):
    """(problem, probability, tokens of the chosen, tokens of the rejected)."""
    (shared,) = make_pairs(1)
    return [
        dataclasses.replace(
            shared,
            id=name,
            probability=probability,
            chosen_ids=[2] * chosen,
            rejected_ids=[2] * rejected,
        )
        for name, probability, chosen, rejected in rows
    ]


def measure(rows, margins):
    scores = np.array([[margin, 0.0] for margin in margins]).reshape(-1, 2)
    return reward_quality.evaluate_pairs(pairs(*rows), scores, CONFIG, seed=0)


def test_a_problem_is_averaged_first_and_a_tie_is_a_half():
    rows = [("a", 1.0, 3, 3)] * 3 + [("b", 1.0, 3, 3)]
    found = measure(rows, [1.0, -1.0, 0.0, 3.0])
    # a: (1 + 0 + 1/2) / 3 = 1/2; b: 1. Over problems 3/4, over pairs it would be 5/8.
    assert found["accuracy"] == {"value": 0.75, "low": 0.5, "high": 1.0}
    assert found["tie_rate"]["value"] == pytest.approx(1 / 6, abs=1e-6)
    assert (found["pairs"], found["problems"], found["undecided_pairs"]) == (4, 2, 0)


def test_accuracy_goes_by_the_label_and_leaves_out_pairs_without_a_better_side():
    rows = [("a", 0.9, 3, 3), ("b", 0.1, 3, 3), ("c", 0.5, 3, 3)]
    found = measure(rows, [1.0, 1.0, 1.0])
    assert found["accuracy"]["value"] == 0.5
    assert found["undecided_pairs"] == 1
    nothing = measure([("a", 0.5, 3, 3)], [1.0])
    assert nothing["accuracy"] is None
    assert nothing["length_matched_accuracy"] is None


def test_likelihood_and_entropy_worked_by_hand():
    found = measure([("a", 0.75, 3, 3)], [math.log(3.0)])
    # P = 3/4, which is the label: the likelihood is the label's entropy, the least it can be.
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert found["negative_log_likelihood"]["value"] == pytest.approx(entropy, abs=1e-6)
    assert found["label_entropy"]["value"] == pytest.approx(entropy, abs=1e-6)
    assert found["expected_calibration_error"]["value"] == pytest.approx(0.0, abs=1e-6)
    hard = measure([("a", 1.0, 3, 3)], [-1e6])
    assert hard["negative_log_likelihood"]["value"] == 1e6
    assert hard["label_entropy"]["value"] == 0.0


def test_a_model_of_lengths_alone_is_found_out():
    rows = [("a", 1.0, 9, 3), ("b", 1.0, 4, 4), ("c", 1.0, 3, 9), ("d", 0.0, 2, 9)]
    lengths = [chosen - rejected for _, _, chosen, rejected in rows]
    found = measure(rows, lengths)
    # Tokens of the better side minus the other's: 6, 0, -6, and 7, for d's label is turned.
    by_length = found["accuracy_by_length_difference"]
    assert {name: (item["value"], item["pairs"]) for name, item in by_length.items()} == {
        "<= -2": (0.0, 1), "-1 .. 1": (0.5, 1), ">= 2": (1.0, 2),
    }  # fmt: skip
    assert found["length_matched_accuracy"]["value"] == 0.5
    # Right on every pair of the bucket, and still not certain.
    assert by_length[">= 2"]["low"] < 0.5 < by_length[">= 2"]["high"] == 1.0


def test_lengths_match_up_to_the_tolerance_on_both_sides():
    rows = [(f"p{at}", 1.0, 5 + longer, 5) for at, longer in enumerate((-2, -1, 0, 1, 2))]
    assert measure(rows, [1.0] * 5)["length_matched_accuracy"]["pairs"] == 3


def test_an_empty_bucket_is_null():
    found = measure([("a", 1.0, 9, 3)], [1.0])
    assert found["accuracy_by_length_difference"]["<= -2"] is None
    assert found["length_matched_accuracy"] is None


def test_nothing_depends_on_which_of_a_pair_stands_first():
    stream = np.random.default_rng(0)
    rows = [(f"p{i // 3}", float(p), int(c), int(r)) for i, (p, c, r) in enumerate(
        zip(stream.random(30), stream.integers(1, 9, 30), stream.integers(1, 9, 30), strict=True)
    )]  # fmt: skip
    margins = stream.normal(0, 2, 30)
    turned = [(name, 1 - label, rejected, chosen) for name, label, chosen, rejected in rows]
    quality, other = measure(rows, margins), measure(turned, -margins)
    flat = [str(item) for item in (quality, other)]
    assert flat[0] == flat[1]


def test_of_no_pairs_nothing_is_measured_and_that_is_told(caplog):
    assert measure([], np.zeros((0, 2))) == {"pairs": 0}
    assert "no held-out pairs" in caplog.text


def test_scores_that_are_no_numbers_are_an_error():
    with pytest.raises(ValueError, match="diverged"):
        measure([("a", 1.0, 3, 3)], [math.nan])


def outcomes_of(**problems):
    return [
        Outcome(id=name, prompt_ids=[2], completion_ids=[3, 1], right=right == "+", weight=1.0)
        for name, verdicts in problems.items()
        for right in verdicts
    ]


def measure_outcomes(outcomes, scores):
    return reward_quality.evaluate_outcomes(outcomes, np.array(scores, dtype=float), CONFIG, seed=0)


def test_areas_are_of_problems_with_both_and_are_averaged_over_these():
    found = measure_outcomes(outcomes_of(a="+-", b="+--", c="++"), [1, 0, 1, 2, 0, -9, 9])
    assert found["auc"]["value"] == 0.75  # a: 1; b: 1/2; c has none
    assert (found["problems"], found["problems_with_both"], found["completions"]) == (3, 2, 7)
    assert found["right_share"]["value"] == pytest.approx((1 / 2 + 1 / 3 + 1) / 3, abs=1e-6)


def test_accuracy_and_likelihood_worked_by_hand():
    score = math.log(3.0)
    found = measure_outcomes(outcomes_of(a="+-"), [score, score])
    assert found["accuracy"]["value"] == 0.5
    expected = (math.log(4 / 3) + math.log(4)) / 2
    assert found["negative_log_likelihood"]["value"] == pytest.approx(expected, abs=1e-6)
    assert found["expected_calibration_error"]["value"] == pytest.approx(0.25, abs=1e-6)
    assert measure_outcomes(outcomes_of(a="+"), [0.0])["accuracy"]["value"] == 0.5


def test_a_sure_verdict_is_finite_and_telling_everything_apart_is_not_certainty():
    found = measure_outcomes(outcomes_of(a="+-", b="-+"), [1e5, -1e5, -1e5, 1e5])
    assert found["negative_log_likelihood"]["value"] == 0.0
    assert found["accuracy"]["value"] == found["auc"]["value"] == 1.0
    assert found["auc"]["low"] < 1.0


def test_no_problem_with_both_has_no_area():
    found = measure_outcomes(outcomes_of(a="++", b="--"), [1, 1, -1, -1])
    assert found["auc"] is None
    assert found["problems_with_both"] == 0
    assert found["one_verdict_accuracy"] == 0.5


def test_no_completions_and_no_numbers_are_errors():
    with pytest.raises(ValueError, match="found none"):
        measure_outcomes([], [])
    with pytest.raises(ValueError, match="diverged"):
        measure_outcomes(outcomes_of(a="+"), [math.inf])


SETTINGS = {
    "num_bins": 4,
    "length_tolerance": 2,
    "length_edges": [0],
    "num_bootstrap": 300,
    "confidence": 0.95,
}
FOUR = QualityConfig(**SETTINGS)


def found(values, problems, **settings):
    return reward_quality.average_over_problems(
        np.array(values, dtype=float), np.array(problems, dtype=int), FOUR, 0, **settings
    )


def test_rows_of_a_problem_count_once():
    assert found([1, 0, 0, 0, 1], [0, 1, 1, 1, 1]) == {"value": 0.625, "low": 0.25, "high": 1.0}


def test_nothing_measured_is_nothing_told():
    assert found([], []) is None


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_rate_that_is_the_same_on_every_problem_is_not_certain(value):
    # Wilson's interval of 10 of 10, and of 0 of 10.
    ten = found([value] * 10, range(10))
    width = 0.2775
    assert ten["value"] == value
    assert ten["high"] - ten["low"] == pytest.approx(width, abs=1e-4)
    assert found([value] * 10, range(10), is_rate=False) == {
        "value": value, "low": value, "high": value,
    }  # fmt: skip


@pytest.mark.parametrize("edges", [[3, -2], [0, 0], [-8, -2, 15, 3]])
def test_edges_that_do_not_rise_are_refused_before_anything_is_trained(edges):
    with pytest.raises(ValueError, match="expected rising edges, each once, found"):
        QualityConfig(**SETTINGS | {"length_edges": edges})
    rising = sorted(set(edges))
    assert QualityConfig(**SETTINGS | {"length_edges": rising}).length_edges == rising
