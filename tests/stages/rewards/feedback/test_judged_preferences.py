import pytest
from judged_rows import RuleChooser, pair

from stages.rewards.feedback import judged_preferences, judging
from stages.rewards.feedback.judging import LabelRule

PROMPTS = judging.Prompts(style="short", constitution="none")


def labelled(rule, asked, **changes):
    settings = {
        "labels": "soft",
        "min_option_mass": 0.5,
        "min_confidence": 0.0,
        "inconsistent": "keep",
        "clamp": None,
    }
    label_rule = LabelRule(**(settings | changes))
    verdicts, _ = judging.judge(RuleChooser(rule), [asked], PROMPTS, label_rule, "train")
    return judged_preferences.preferences(asked, verdicts, label_rule)


def prefers_b(first: str, _second: str) -> float:
    return 0.8 if first == "B" else 0.1


def test_the_preferred_side_is_chosen_with_its_averaged_probability():
    (row,) = labelled(prefers_b, [pair("A", "B")])
    # P(A) = (0.1 + 1 - 0.8) / 2 = 0.15
    assert (row.chosen, row.rejected, row.source) == ("B", "A", "ai")
    assert row.probability == pytest.approx(0.85)
    assert (row.prompt_ids, row.id) == ([5], "a")


def test_hard_labels_are_sure_and_clamped_ones_are_not():
    assert labelled(prefers_b, [pair("A", "B")], labels="hard")[0].probability == 1.0
    assert labelled(prefers_b, [pair("A", "B")], clamp=(0.4, 0.6))[0].probability == 0.6


def test_of_a_tie_a_is_chosen_with_one_half():
    (row,) = labelled(lambda _first, _second: 0.7, [pair("A", "B")])
    assert (row.chosen, row.probability) == ("A", 0.5)


def test_a_tie_is_never_made_sure():
    asked = [pair("A", "B"), pair("C", "D")]
    rows = labelled(
        lambda first, _: 0.7 if first in "AB" else float(first == "C"), asked, labels="hard"
    )
    assert [(row.chosen, row.probability) for row in rows] == [("C", 1.0)]
    with pytest.raises(ValueError, match=r"'tie': 2.*soft keeps ties"):
        labelled(lambda _first, _second: 0.7, asked, labels="hard")


def test_dropped_pairs_are_left_out_and_none_left_is_an_error_with_the_reasons():
    asked = [pair("A", "B"), pair("C", "D")]
    rows = labelled(lambda first, _: None if first in "AB" else 0.9, asked)
    assert [row.chosen for row in rows] == ["C"]
    with pytest.raises(ValueError, match=r"2 pairs .*'low_confidence': 2.*loosen"):
        labelled(lambda _first, _second: 0.7, asked, min_confidence=0.1)


def test_right_answers_and_lengths_by_problem_and_index():
    correct, num_tokens = judged_preferences.facts(
        [pair("3 + 4 = 7\n#### 7", "#### 9"), pair("#### 7", "x", "b")]
    )
    assert correct == {("a", 0): True, ("a", 1): False, ("b", 0): True, ("b", 1): False}
    assert num_tokens == {("a", 0): 7, ("a", 1): 2, ("b", 0): 2, ("b", 1): 1}
