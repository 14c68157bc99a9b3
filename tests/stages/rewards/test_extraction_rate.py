import pytest

from stages.rewards import extraction_rate


def test_nine_of_ten_is_enough():
    assert extraction_rate.check(9, ["no final answer"]) == 0.9


def test_less_is_an_error_that_shows_one_and_says_what_to_write():
    with pytest.raises(ValueError, match=r"88\.9% of 9 .*no final answer in 'so 4'.*#### 42"):
        extraction_rate.check(8, ["no final answer in 'so 4'"])


def test_no_solution_at_all_is_an_error():
    with pytest.raises(ValueError, match="nothing to imitate"):
        extraction_rate.check(0, [])
