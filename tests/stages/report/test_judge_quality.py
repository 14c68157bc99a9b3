import pytest

from stages.records.preferences import Verdict
from stages.report import judge_quality


def verdict(name: str, p12: float | None, p21: float | None, dropped: str | None = None) -> Verdict:
    read = p12 is not None and p21 is not None
    return Verdict(
        split="train",
        id=name,
        index_a=0,
        index_b=1,
        p12=p12,
        p21=p21,
        gap=abs(p12 - (1 - p21)) if read else None,
        probability=(p12 + 1 - p21) / 2 if read else None,
        option_mass=0.8 if read else None,
        principle=None,
        prompt_version="short-1",
        dropped=dropped,
    )


VERDICTS = [
    verdict("a", 0.9, 0.2),  # A in both orders
    verdict("b", 0.9, 0.7),  # the first, both times; label 0.6
    verdict("c", 0.3, 0.6),  # B in both orders
    verdict("d", 0.8, 0.7, dropped="low_confidence"),  # label 0.55
    verdict("e", 0.9, 0.9, dropped="parse_failure"),
    verdict("f", None, None, dropped="too_long"),
]
CORRECT = {(name, index): index == 0 for name in "abcdef" for index in (0, 1)}
LENGTHS = {(name, index): 5 - 2 * index for name in "abcdef" for index in (0, 1)}


def test_every_number_by_hand():
    result = judge_quality.summarise_verdicts(VERDICTS, CORRECT, LENGTHS, seed=0)
    assert (result["pairs_asked"], result["pairs"]) == (6, 3)
    assert result["dropped"] == {"low_confidence": 1, "parse_failure": 1, "too_long": 1}
    assert result["parse_failures"] == pytest.approx(1 / 6, abs=1e-6)
    # read: a, b, c, d
    assert result["swap_consistency"] == 0.5
    assert result["first_position_rate"] == (0.5 + 1 + 0.5 + 1) / 4
    assert result["first_position_probability"] == pytest.approx((0.55 + 0.8 + 0.45 + 0.75) / 4)
    assert result["mean_gap"] == pytest.approx((0.1 + 0.6 + 0.1 + 0.5) / 4)
    assert result["mean_option_mass"] == 0.8
    assert result["longer_wins_rate"] == 0.75  # A is longer and wins a, b and d
    agreement = result["agreement"]
    assert (agreement["pairs"], agreement["problems"]) == (4, 4)
    # right in single orders: a 2 of 2, b 1 of 2, c 0 of 2, d 1 of 2
    assert agreement["single_order"]["value"] == 0.5
    assert agreement["averaged"]["value"] == 0.75
    assert agreement["gain"]["value"] == 0.25
    # A is right and longer in each
    assert agreement["longer_wins"]["value"] == 1.0
    assert agreement["beyond_length"]["value"] == -0.25
    assert "equal_length" not in agreement
    for name in ("single_order", "averaged", "gain"):
        assert agreement[name]["low"] <= agreement[name]["high"]


def test_pairs_of_which_both_or_none_are_right_say_nothing_about_the_judge():
    correct = CORRECT | {("a", 1): True, ("b", 0): False}
    result = judge_quality.summarise_verdicts(VERDICTS, correct, LENGTHS, seed=0)
    assert result["agreement"]["pairs"] == 2
    nobody = dict.fromkeys(CORRECT, False)
    assert judge_quality.summarise_verdicts(VERDICTS, nobody, LENGTHS, seed=0)["agreement"] == {
        "pairs": 0
    }


def test_a_judge_of_whom_nothing_could_be_read_has_counts_only():
    result = judge_quality.summarise_verdicts(VERDICTS[4:], CORRECT, LENGTHS, seed=0)
    assert result == {
        "pairs_asked": 2,
        "pairs": 0,
        "dropped": {"parse_failure": 1, "too_long": 1},
        "parse_failures": 0.5,
    }


def test_completions_of_equal_length_are_in_no_length_rate():
    level = dict.fromkeys(LENGTHS, 5)
    assert "longer_wins_rate" not in judge_quality.summarise_verdicts(
        VERDICTS, CORRECT, level, seed=0
    )


def test_flip_rates_with_the_control_apart():
    result = judge_quality.estimate_flip_rates(
        {"x": [("a", 1.0), ("b", 0.0)], "y": [("a", 1.0)], "z": [], "control": [("a", 0.0)]}, 0
    )
    assert result["x"]["readings"] == 2
    assert result["x"]["value"] == 0.5
    assert result["all"]["readings"] == 3
    assert result["all"]["value"] == 0.5  # problem a: 1 and 1, problem b: 0
    # None of 1 at 95 %: to 1.96^2 / (1 + 1.96^2) = 0.7935; 2 of 2 from 2 / (2 + 1.96^2) = 0.3424.
    assert result["control"] == {"readings": 1, "value": 0.0, "low": 0.0, "high": 0.793451}
    both = judge_quality.estimate_flip_rates({"x": [("a", 1.0), ("b", 1.0)]}, 0)["x"]
    assert (both["low"], both["high"]) == pytest.approx((0.3424, 1.0), abs=1e-4)
    assert result["z"] == {"readings": 0}


def test_pairs_of_equal_length_are_told_apart_from_those_that_length_decides():
    """`c`, which the judge gets wrong, is of two as long; in `b` the wrong one is longer."""
    lengths = LENGTHS | {("c", 0): 4, ("c", 1): 4, ("b", 0): 2, ("b", 1): 9}
    result = judge_quality.summarise_verdicts(VERDICTS, CORRECT, lengths, seed=0)["agreement"]
    assert result["longer_wins"]["value"] == (1 + 0 + 0.5 + 1) / 4
    assert result["beyond_length"]["value"] == 0.75 - 2.5 / 4
    assert (result["equal_length_pairs"], result["equal_length"]["value"]) == (1, 0.0)


def test_a_judge_who_is_always_right_is_not_certain_to_be():
    verdicts = [verdict(name, 0.9, 0.2) for name in "abcdef"]
    result = judge_quality.summarise_verdicts(verdicts, CORRECT, LENGTHS, seed=0)["agreement"]
    # 6 of 6: from 6 / (6 + 1.96^2) = 0.6097.
    assert (result["averaged"]["low"], result["averaged"]["high"]) == pytest.approx(
        (0.6097, 1.0), abs=1e-4
    )
    # The longer is right as often: w = 1 - 0.025^(1/6) = 0.4593.
    assert result["beyond_length"] == {"value": 0.0, "low": -0.459258, "high": 0.459258}


def test_a_judge_who_always_prefers_the_first_is_not_certain_to():
    verdicts = [verdict(name, 0.9, 0.8) for name in "abcdef"]
    result = judge_quality.summarise_verdicts(verdicts, CORRECT, LENGTHS, seed=0)["agreement"]
    # A share w = 0.4593 of all problems may have 0, or 1: 0.5 (1 - w), 0.5 (1 + w).
    assert result["single_order"] == {"value": 0.5, "low": 0.270371, "high": 0.729629}
