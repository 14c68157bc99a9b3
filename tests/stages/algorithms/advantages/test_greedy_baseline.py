import pytest
import torch

from stages.algorithms.advantages.greedy_baseline import greedy_baseline

REWARDS = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
GREEDY = torch.tensor([0.25, 1.0, 0.25], dtype=torch.float64)
GROUPS = torch.tensor([4, 9, 4])
ALL = torch.ones(3, dtype=torch.bool)


def test_hand_worked_numbers():
    # 1 - 0.25, 0 - 1, 0.5 - 0.25. Group 9 is one completion, and has an advantage.
    found = greedy_baseline(REWARDS, GROUPS, counted=ALL, greedy_rewards=GREEDY)
    assert found.tolist() == [0.75, -1.0, 0.25]


def test_the_greedy_completion_itself_gets_zero():
    found = greedy_baseline(GREEDY, GROUPS, counted=ALL, greedy_rewards=GREEDY)
    assert found.tolist() == [0.0, 0.0, 0.0]


def test_what_does_not_count_gets_zero_even_if_nan():
    counted = torch.tensor([True, False, True])
    found = greedy_baseline(
        torch.where(counted, REWARDS, torch.nan),
        GROUPS,
        counted=counted,
        greedy_rewards=torch.where(counted, GREEDY, torch.nan),
    )
    assert found.tolist() == [0.75, 0.0, 0.25]


def test_different_greedy_rewards_within_a_prompt_are_refused():
    with pytest.raises(ValueError, match="one greedy reward a prompt"):
        greedy_baseline(REWARDS, GROUPS, counted=ALL, greedy_rewards=torch.arange(3.0).double())


def test_no_gradient_flows_through():
    rewards, greedy = REWARDS.clone().requires_grad_(), GREEDY.clone().requires_grad_()
    found = greedy_baseline(rewards, GROUPS, counted=ALL, greedy_rewards=greedy)
    assert not found.requires_grad
