from answers import Answers

from stages.rewards.available import NOTHING
from stages.rewards.components.length_penalty import LengthPenalty


def test_every_token_costs_the_same():
    found = LengthPenalty(kind="length_penalty", per=4)(Answers(["", "a", "abcdefgh"]), NOTHING)
    assert found.totals == [0.0, -0.25, -2.0]
