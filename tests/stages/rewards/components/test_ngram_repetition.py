import pytest
from answers import Answers

from stages.rewards.available import NOTHING
from stages.rewards.components.ngram_repetition import NgramRepetition


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3, 4], 0.0),
        # 12 23 31 12 23: two of five were there before
        ([1, 2, 3, 1, 2, 3], -0.4),
        # 11 four times: three of four
        ([5, 5, 5, 5, 5], -0.75),
        ([1], 0.0),
    ],
)
def test_the_share_of_bigrams_said_before(tokens, expected):
    drawn = Answers(["x"], tokens=[tokens])
    found = NgramRepetition(kind="ngram_repetition", n=2)(drawn, NOTHING)
    assert found.totals == [pytest.approx(expected)]
