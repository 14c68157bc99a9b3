from answers import Answers

from stages.rewards.available import NOTHING
from stages.rewards.components.length_target import LengthTarget


def test_too_short_costs_what_too_long_costs():
    drawn = Answers(["", "ab", "abcd", "abcdef"])
    found = LengthTarget(kind="length_target", target=4)(drawn, NOTHING)
    assert found.totals == [-1.0, -0.5, 0.0, -0.5]
