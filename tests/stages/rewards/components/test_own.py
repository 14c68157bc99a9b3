from dataclasses import replace

import pytest
from answers import Answers

from stages.rewards.available import NOTHING
from stages.rewards.components.own import Own


def test_the_function_is_given_prompt_and_text():
    available = replace(NOTHING, own=lambda prompt, text: len(text) + float(prompt.answer))
    assert Own(kind="own")(Answers(["a", "bc"]), available).totals == [8.0, 9.0]


def test_an_error_in_it_shows_the_completion():
    available = replace(NOTHING, own=lambda prompt, text: 1 / (len(text) - 2))
    with pytest.raises(ValueError, match=r"ZeroDivisionError: .*completion 1, .*'p0': 'bc'"):
        Own(kind="own")(Answers(["a", "bc"]), available)


def test_without_a_function_there_is_no_value():
    with pytest.raises(ValueError, match="`own` is none"):
        Own(kind="own")(Answers(["a"]), NOTHING)
