import pydantic
import pytest

from stages.rewards.feedback.label_rule import LabelRule

RULE = {
    "labels": "soft",
    "min_option_mass": 0.5,
    "min_confidence": 0.1,
    "inconsistent": "keep",
    "clamp": None,
}


def rule(**changes: object) -> LabelRule:
    return LabelRule(**(RULE | changes))


@pytest.mark.parametrize(
    ("p12", "p21", "mass", "changes", "reason"),
    [
        (0.9, 0.1, 0.9, {}, None),
        (0.9, 0.1, 0.49, {}, "parse_failure"),
        (0.9, 0.1, 0.5, {}, None),
        (0.9, 0.8, 0.9, {}, "low_confidence"),  # label 0.55
        (0.9, 0.8, 0.9, {"min_confidence": 0.0}, None),
        (0.5, 0.5, 0.9, {"min_confidence": 0.0}, None),  # a tie, kept where nothing is asked
        (0.5, 0.5, 0.9, {"min_confidence": 0.0, "labels": "hard"}, "tie"),
        (0.7, 0.7, 0.9, {"labels": "hard"}, "tie"),  # not merely unsure
        (0.7, 0.7, 0.9, {"labels": "hard", "inconsistent": "drop"}, "inconsistent"),
        (0.500002, 0.5, 0.9, {"min_confidence": 0.0, "labels": "hard"}, None),
        (0.7, 0.5, 0.9, {}, None),  # label 0.6, and 0.6 - 0.5 < 0.1 in floats
        (0.9, 0.6, 0.9, {}, None),  # inconsistent, label 0.65
        (0.9, 0.6, 0.9, {"inconsistent": "drop"}, "inconsistent"),
        (0.9, 0.6, 0.1, {"inconsistent": "drop"}, "parse_failure"),
    ],
)
def test_which_pairs_are_dropped_and_why(p12, p21, mass, changes, reason):
    assert rule(**changes).reason_to_drop(p12, p21, mass) == reason


def test_a_label_is_kept_or_made_sure_or_clamped():
    assert rule().probability(0.83) == 0.83
    assert rule(labels="hard").probability(0.83) == 1.0
    assert rule(clamp=(0.4, 0.6)).probability(0.83) == 0.6
    assert rule(clamp=(0.4, 0.6)).probability(0.55) == 0.55


@pytest.mark.parametrize("clamp", [(0.6, 0.4), (0.5, 0.6), (0.1, 0.4)])
def test_bounds_that_are_not_around_a_half_are_refused(clamp):
    with pytest.raises(pydantic.ValidationError, match=r"bounds around 0\.5"):
        rule(clamp=clamp)
