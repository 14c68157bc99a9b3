from dataclasses import dataclass

from stages.records.prompt import Prompt
from stages.rewards import rollout_rewards
from stages.rewards.rollout_rewards import RuleRewardConfig


@dataclass
class Answers:
    """Two completions of each prompt."""

    texts: list[str]
    golds: list[str]

    def prompt(self, index):
        gold = self.golds[index // 2]
        return Prompt(id="p", task="solve", question="", prompt="", prompt_ids=[1], answer=gold)


ANSWERS = Answers(
    texts=["3 + 4 = 7\n#### 7", "#### 7", "3 + 4 = 8\n#### 8", "no idea"], golds=["7", "7"]
)


def test_each_completion_is_checked_against_its_own_prompts_answer():
    assert rollout_rewards.correct(ANSWERS) == [True, True, False, False]
    other = Answers(texts=ANSWERS.texts, golds=["8", "8"])
    assert rollout_rewards.correct(other) == [False, False, True, False]


def test_the_rule_adds_the_weights_of_what_holds():
    # Right and shown; right only; shown only; neither.
    found = rollout_rewards.rule(ANSWERS, RuleRewardConfig(answer=1.0, format=0.25))
    assert found == [1.25, 1.0, 0.25, 0.0]


def test_a_weight_of_0_switches_a_part_off():
    assert rollout_rewards.rule(ANSWERS, RuleRewardConfig(answer=1.0, format=0.0)) == [1, 1, 0, 0]
