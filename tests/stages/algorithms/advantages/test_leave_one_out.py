import pytest
import torch

from stages.algorithms.advantages.leave_one_out import leave_one_out


def test_hand_worked_numbers():
    # The others of 1.5 are 1, 0, 0: 1.5 - 1/3; of 1: 1 - 1.5/3 = 0.5; of 0: 0 - 2.5/3.
    rewards = torch.tensor([1.5, 1.0, 0.0, 0.0], dtype=torch.float64)
    groups, counted = torch.full((4,), 9), torch.ones(4, dtype=torch.bool)
    found = leave_one_out(rewards, groups, counted=counted)
    assert found.tolist() == pytest.approx([7 / 6, 0.5, -5 / 6, -5 / 6])


def test_it_is_the_centred_reward_times_n_over_n_minus_1():
    rewards = torch.rand(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    groups, counted = torch.zeros(5, dtype=torch.long), torch.ones(5, dtype=torch.bool)
    found = leave_one_out(rewards, groups, counted=counted)
    torch.testing.assert_close(found, (rewards - rewards.mean()) * 5 / 4)


def test_the_baseline_does_not_depend_on_the_completion_itself():
    rewards = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    groups, counted = torch.zeros(3, dtype=torch.long), torch.ones(3, dtype=torch.bool)
    found = leave_one_out(rewards, groups, counted=counted)
    rewards[0] += 10
    # Its own advantage grows by all 10; the others' baselines by 10 / 2.
    change = leave_one_out(rewards, groups, counted=counted) - found
    assert change.tolist() == [10.0, -5.0, -5.0]
