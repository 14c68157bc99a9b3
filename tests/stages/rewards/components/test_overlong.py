from dataclasses import replace

from answers import Answers

from stages.rewards.available import NOTHING
from stages.rewards.components.overlong import Overlong


def test_it_grows_over_the_last_tokens_before_the_limit():
    available = replace(NOTHING, max_new_tokens=8)
    found = Overlong(kind="overlong", buffer=4)(Answers(["abcd", "abcde", "abcdefgh"]), available)
    assert found.totals == [0.0, -0.25, -1.0]
