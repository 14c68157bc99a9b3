from dataclasses import replace

import pytest

from stages.records.preferences import RawPreference, Turn
from stages.sources.preferences.columns import better_first, check_answers
from stages.sources.quarantine import RejectedError

PAIR = RawPreference(
    turns=(Turn("user", "Hi"),),
    plain_prompt="Hi",
    plain_lead="",
    chosen="a",
    rejected="b",
    probability=0.25,
    line=1,
)


def test_an_answer_that_is_less_likely_the_better_one_is_the_rejected_one():
    assert better_first(PAIR) == replace(PAIR, chosen="b", rejected="a", probability=0.75)
    sure = replace(PAIR, probability=1.0)
    assert better_first(sure) is sure


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"chosen": " \n"}, "empty answer"), ({"rejected": " a\n"}, "equal answers")],
)
def test_answers_that_say_nothing_or_the_same_are_refused(change, reason):
    assert check_answers(PAIR) is PAIR
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        check_answers(replace(PAIR, **change))
