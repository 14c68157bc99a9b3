import pytest
import torch
from answers import Answers

from stages.loops import rollout_rewards
from stages.rewards.completion_rewards import (
    MAX_SHOWN,
    CompletionRewards,
    describe_completion,
    join_rewards,
    score_each,
)
from stages.runtime.process import Stopped

STEPS = torch.tensor([[0.0, 0.5, 0.25], [1.0, 0.0, 0.0]])


def test_a_completion_is_paid_its_total_and_its_steps():
    judged = CompletionRewards(totals=[1.0, -1.0], step_rewards=STEPS, step_ends=STEPS != 0)
    assert judged.rewards().tolist() == [1.75, 0.0]
    assert CompletionRewards(totals=[1.0, -1.0]).rewards().tolist() == [1.0, -1.0]


def test_parts_are_logged_as_their_means():
    judged = CompletionRewards(
        totals=[0.0, 0.0], parts={"answer": [1.0, 0.0]}, metrics={"x/y": 3.0}
    )
    assert judged.statistics() == {"reward/answer": 0.5, "x/y": 3.0}


def test_joined_batches_keep_their_order_and_their_means():
    first = CompletionRewards(
        totals=[1.0, 2.0],
        parts={"a": [1.0, 2.0]},
        step_rewards=STEPS,
        step_ends=STEPS != 0,
        metrics={"m": 1.0},
    )
    second = CompletionRewards(
        totals=[3.0],
        parts={"a": [3.0]},
        step_rewards=torch.tensor([[4.0]]),
        step_ends=torch.tensor([[True]]),
        metrics={"m": 4.0},
    )
    result = join_rewards([first, second])
    assert result.totals == [1.0, 2.0, 3.0]
    assert result.parts == {"a": [1.0, 2.0, 3.0]}
    assert result.step_rewards.tolist() == [*STEPS.tolist(), [4.0, 0.0, 0.0]]
    assert result.metrics == {"m": pytest.approx(2.0)}
    assert join_rewards([CompletionRewards(totals=[1.0])]).step_rewards is None


def test_joined_batches_keep_where_steps_end():
    ends = torch.tensor([[True, False]])
    first = CompletionRewards(totals=[0.0], step_rewards=torch.zeros(1, 2), step_ends=ends)
    second = CompletionRewards(
        totals=[0.0], step_rewards=torch.zeros(1, 1), step_ends=torch.tensor([[True]])
    )
    result = join_rewards([first, second])
    assert result.step_ends.tolist() == [[True, False], [True, False]]


def test_rewards_of_steps_come_with_their_ends():
    with pytest.raises(ValueError, match="together"):
        CompletionRewards(totals=[0.0], step_rewards=torch.zeros(1, 2))


def test_verdicts_are_numbers():
    assert score_each(Answers(["a", "bb"]), lambda _, text: text == "a").totals == [1.0, 0.0]


def test_a_completion_that_exits_as_its_code_is_run_does_not_end_the_stage():
    with pytest.raises(ValueError, match=r"sys\.exit\(3\), .*of prompt 'p0': 'exit\(3\)'"):
        score_each(Answers(["exit(3)"]), lambda _, text: exec(text) or 1.0)


def test_a_request_to_stop_goes_through_a_reward():
    def reward(*_):
        raise Stopped

    with pytest.raises(Stopped):
        score_each(Answers(["a"]), reward)


def test_what_is_no_number_is_an_error():
    with pytest.raises(ValueError, match=r"a number .*found None, on .*of prompt 'p0': 'a'"):
        score_each(Answers(["a"]), lambda *_: None)


def test_a_long_completion_is_shown_cut_and_says_so():
    shown = describe_completion(Answers(["a" * (MAX_SHOWN + 5)]), 0)
    assert "'" + "a" * MAX_SHOWN + "' and 5 characters more" in shown


def test_each_completion_is_checked_against_its_own_prompts_answer():
    texts = ["3 + 4 = 7\n#### 7", "#### 7", "3 + 4 = 8\n#### 8", "no idea"]
    drawn = Answers(texts=texts, golds=["7", "7"], group_size=2)
    assert rollout_rewards.check_answers(drawn) == [True, True, False, False]
    drawn = Answers(texts=texts, golds=["8", "8"], group_size=2)
    assert rollout_rewards.check_answers(drawn) == [False, False, True, False]
