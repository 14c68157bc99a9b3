from dataclasses import replace

import pytest
from answers import Answers

from stages.rewards.available import NOTHING
from stages.rewards.components.judge import Judge
from stages.rewards.judged import Judged

DRAWN = Answers(["a", "b"])


def test_it_is_what_the_entrys_model_says():
    said = Judged(totals=[0.5, -0.5], metrics={"ensemble/disagreement": 0.1})
    assert Judge(kind="judge")(DRAWN, replace(NOTHING, judge=lambda: said)) is said


def test_without_a_model_there_is_no_score():
    with pytest.raises(ValueError, match="the entry's word `scorer`"):
        Judge(kind="judge")(DRAWN, NOTHING)
