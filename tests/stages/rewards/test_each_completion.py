import pytest
from answers import Answers

from stages.rewards.each_completion import MAX_SHOWN, each, shown


def test_verdicts_are_numbers():
    assert each(Answers(["a", "bb"]), lambda _, text: text == "a").totals == [1.0, 0.0]


def test_what_is_no_number_is_an_error():
    with pytest.raises(ValueError, match=r"TypeError: .*of prompt 'p0': 'a'"):
        each(Answers(["a"]), lambda *_: None)


def test_a_long_completion_is_shown_cut_and_says_so():
    assert shown(Answers(["a" * (MAX_SHOWN + 5)]), 0).endswith("' and 5 characters more")
