from answers import Answers

from stages.rewards.available import NOTHING
from stages.rewards.components.final_line import FinalLine


def test_working_and_then_one_line_whether_right_or_not():
    drawn = Answers(["3 + 4 = 8\n#### 8", "#### 7", "3 + 4 = 7\n#### 7\n", "7", ""])
    assert FinalLine(kind="final_line")(drawn, NOTHING).totals == [1.0, 0.0, 1.0, 0.0, 0.0]
