from answers import Answers

from stages.rewards import rollout_rewards


def test_each_completion_is_checked_against_its_own_prompts_answer():
    texts = ["3 + 4 = 7\n#### 7", "#### 7", "3 + 4 = 8\n#### 8", "no idea"]
    drawn = Answers(texts=texts, golds=["7", "7"], group_size=2)
    assert rollout_rewards.correct(drawn) == [True, True, False, False]
    drawn = Answers(texts=texts, golds=["8", "8"], group_size=2)
    assert rollout_rewards.correct(drawn) == [False, False, True, False]
