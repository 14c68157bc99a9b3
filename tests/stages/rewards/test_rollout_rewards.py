from dataclasses import dataclass

import pytest

from stages.records.prompt import Prompt
from stages.rewards import rollout_rewards
from stages.rewards.rollout_rewards import RuleRewardConfig


@dataclass
class Answers:
    """Two completions of each prompt."""

    texts: list[str]
    golds: list[str]

    groups = (0, 0, 1, 1)

    def prompt(self, index):
        gold = self.golds[index // 2]
        return Prompt(id="p", task="solve", question="", prompt="", prompt_ids=[1], answer=gold)


SUM = {"kind": "sum"}

ANSWERS = Answers(
    texts=["3 + 4 = 7\n#### 7", "#### 7", "3 + 4 = 8\n#### 8", "no idea"], golds=["7", "7"]
)


def test_each_completion_is_checked_against_its_own_prompts_answer():
    assert rollout_rewards.correct(ANSWERS) == [True, True, False, False]
    other = Answers(texts=ANSWERS.texts, golds=["8", "8"])
    assert rollout_rewards.correct(other) == [False, False, True, False]


def test_the_rule_adds_the_weights_of_what_holds():
    # Right and shown; right only; shown only; neither.
    found = rollout_rewards.rule(
        ANSWERS, RuleRewardConfig(answer=1.0, format=0.25, combine=SUM)
    ).totals
    assert found == [1.25, 1.0, 0.25, 0.0]


def test_a_weight_of_0_switches_a_part_off():
    found = rollout_rewards.rule(
        ANSWERS, RuleRewardConfig(answer=1.0, format=0.0, combine=SUM)
    ).totals
    assert found == [1, 1, 0, 0]


def test_parts_may_be_normalised_before_they_are_weighted():
    """Right: 1 1 | 0 0, no signal in either group. Format: 1 0 | 1 0.

    z-scores of 1 0 with n - 1: (1 - 0.5) / 0.7071 = 0.7071, -0.7071; times 0.25: 0.1768. Over the
    batch the standard deviation is sqrt(4 * 0.1768^2 / 3) = 0.2041, so 0.866 -0.866 0.866 -0.866:
    the weight of a part that is alone is gone.
    """
    combine = {"kind": "normalise", "ddof": 1, "eps": 1e-8}
    config = RuleRewardConfig(answer=1.0, format=0.25, combine=combine)
    assert rollout_rewards.rule(ANSWERS, config).totals == pytest.approx(
        [0.866, -0.866] * 2, abs=1e-3
    )
