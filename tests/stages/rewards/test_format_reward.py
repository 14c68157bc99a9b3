import pytest

from stages.rewards.format_reward import has_format, reward


def test_working_then_one_readable_answer_is_the_format() -> None:
    assert reward("3 + 4 = 7\n#### 7") == 1.0
    assert reward("She has 7.\n\n#### $1,234\n") == 1.0


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "#### 7",
        "\n#### 7",
        "...\n#### 7",
        "3 + 4 = 7",
        "3 + 4 = 7 #### 7",
        "3 + 4 = 7\n####",
        "3 + 4 = 7\n#### seven",
        "3 + 4 = 7\n#### 7 or 8",
        "3 + 4 = 7\n#### 7\n#### 7",
        "3 + 4 = 7\n#### 7\nDone.",
        "The answer is 7.\n#### 7",
        "\\boxed{7}\n#### 7",
        "3 + 4 = 7\n<answer>7</answer>",
    ],
)
def test_anything_else_is_not(completion: str) -> None:
    assert not has_format(completion)
