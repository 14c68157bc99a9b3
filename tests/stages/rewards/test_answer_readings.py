import pytest

from stages.rewards import answer_checker, answer_readings


@pytest.mark.parametrize(
    ("completion", "strict", "checker", "lenient"),
    [
        ("3 + 4 = 7\n#### 7", True, True, True),
        ("#### 7", True, True, True),
        ("The answer is 7.", False, True, True),
        ("#### 7\nI am sure", False, True, True),
        ("3 + 4 = 7", False, False, True),
        ("so 7 shells, I think", False, False, True),
        ("3 + 4 = 7\n#### 8", False, False, False),
        ("#### 8\nno, it is 7", False, False, True),
        ("about 1,007.", False, False, False),
        ("no number", False, False, False),
        ("", False, False, False),
        ("minus -7", False, False, False),
    ],
)
def test_each_reading_of_an_answer_seven(completion, strict, checker, lenient):
    assert answer_readings.strict(completion, "7") is strict
    assert answer_checker.is_correct(completion, "7") is checker
    assert answer_readings.lenient(completion, "7") is lenient


def test_separators_belong_to_a_number_and_a_comma_after_it_does_not():
    assert answer_readings.lenient("it costs 1,234, all told", "1234")
    assert not answer_readings.lenient("it costs 1,234, all told", "234")


def test_a_stricter_reading_is_never_right_where_a_laxer_one_is_wrong():
    texts = ["#### 7", "7 #### 8", "#### 8\n7", "answer is 7", "\\boxed{7} 9", "<answer>7</answer>"]
    for text in texts:
        readings = [
            answer_readings.strict(text, "7"),
            answer_checker.is_correct(text, "7"),
            answer_readings.lenient(text, "7"),
        ]
        assert readings == sorted(readings)


def test_nine_of_ten_is_enough():
    assert answer_readings.check_rate(9, ["no final answer"]) == 0.9


def test_less_is_an_error_that_shows_one_and_says_what_to_write():
    with pytest.raises(ValueError, match=r"88\.9% of 9 .*no final answer in 'so 4'.*#### 42"):
        answer_readings.check_rate(8, ["no final answer in 'so 4'"])


def test_no_solution_at_all_is_an_error():
    with pytest.raises(ValueError, match="nothing to imitate"):
        answer_readings.check_rate(0, [])
