from answers import Answers

from stages.rewards.available import NOTHING
from stages.rewards.components.answer import Answer


def test_each_completion_is_checked_against_its_own_prompts_answer():
    texts = ["3 + 4 = 7\n#### 7", "#### 8", "#### 8", "no idea"]
    drawn = Answers(texts=texts, golds=["7", "8"], group_size=2)
    assert Answer(kind="answer")(drawn, NOTHING).totals == [1.0, 0.0, 1.0, 0.0]
