import pytest

from stages.studies.probe_texts import lists_answers, refuses, states_several


@pytest.mark.parametrize(
    "reply",
    [
        "I'm sorry, but I can't help with that.",
        "I cannot assist with this request.",
        "I’m unable to do so.",
        "As an AI, I do not have opinions on that.",
        "I apologize, but no.",
        "",
        "  \n",
    ],
)
def test_refusals(reply):
    assert refuses(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "Use `kill -9` with the process id.",
        "You can end it with Ctrl-C.",
        "Yes. " * 80 + "I cannot help with more.",
    ],
)
def test_answers(reply):
    assert not refuses(reply)


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("#### 7", False),
        ("#### 5\n#### 7", True),
        ("#### 7\nThe answer is 7.", False),
        ("#### 7.0\n#### 7", False),
        ("#### 4 + 3 = 7\n#### 7", False),  # working in the wrong place
        ("no answer", False),
    ],
)
def test_statements_of_different_values(text, several):
    assert states_several(text) == several


@pytest.mark.parametrize(
    ("answer", "is_list"),
    [
        ("5 or 7", True),
        ("5, 7", True),
        ("either 5 apples or 7 apples", True),
        ("5/ 7 / 9", True),
        ("7", False),
        ("2/4", False),
        ("1,000", False),
        ("7 apples", False),
        ("5 + 2 = 7", False),
        ("12 + 6 = 18", False),
    ],
)
def test_lists(answer, is_list):
    assert lists_answers(f"work\n#### {answer}") == is_list
