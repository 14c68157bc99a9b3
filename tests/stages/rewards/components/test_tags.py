import pytest
from answers import Answers

from stages.rewards.available import NOTHING
from stages.rewards.components.tags import Tags

WHOLE = "<think>3 + 4 = 7</think>\n<answer>7</answer>"


@pytest.mark.parametrize(
    ("text", "whole", "per_tag"),
    [
        (WHOLE, 1, 4),
        (f"\n{WHOLE}\n", 1, 4),
        (f"Well. {WHOLE}", 0, 4),
        (f"{WHOLE} Thanks!", 0, 4),
        ("<answer>7</answer><think>3 + 4</think>", 0, 4),
        ("<think>3 + 4</think><answer> </answer>", 0, 4),
        ("<think></think><answer>7</answer>", 0, 4),
        ("<think>a<think>b</think><answer>7</answer>", 0, 3),
        ("<answer>7</answer>", 0, 2),
        (WHOLE + WHOLE, 0, 0),
        ("", 0, 0),
    ],
)
def test_the_whole_format_or_each_tag_once(text, whole, per_tag):
    for credit, expected in (("whole", whole), ("per_tag", per_tag)):
        assert Tags(kind="tags", credit=credit)(Answers([text]), NOTHING).totals == [expected]
