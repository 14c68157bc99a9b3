import math

import pytest
import torch

from stages.algorithms.advantages.batch_std import batch_std


def test_hand_worked_numbers():
    # Groups (0, 2) and (6, 8) centred: (-1, 1) and (-1, 1). The batch 0, 2, 6, 8 has mean 4,
    # squares 16 + 4 + 4 + 16 = 40: std sqrt(10) with ddof 0, sqrt(40 / 3) with ddof 1.
    rewards = torch.tensor([0.0, 2.0, 6.0, 8.0], dtype=torch.float64)
    groups, counted = torch.tensor([0, 0, 1, 1]), torch.ones(4, dtype=torch.bool)
    side = 1 / (math.sqrt(10) + 0.5)
    found = batch_std(rewards, groups, counted=counted, ddof=0, eps=0.5)
    assert found.tolist() == pytest.approx([-side, side, -side, side])
    side = 1 / math.sqrt(40 / 3)
    found = batch_std(rewards, groups, counted=counted, ddof=1, eps=0.0)
    assert found.tolist() == pytest.approx([-side, side, -side, side])


def test_with_one_group_it_is_the_z_score():
    rewards = torch.rand(6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    groups, counted = torch.zeros(6, dtype=torch.long), torch.ones(6, dtype=torch.bool)
    found = batch_std(rewards, groups, counted=counted, ddof=1, eps=0.0)
    torch.testing.assert_close(found, (rewards - rewards.mean()) / rewards.std())


def test_a_batch_too_small_for_its_divisor_gets_zero():
    groups, counted = torch.tensor([0, 0]), torch.ones(2, dtype=torch.bool)
    found = batch_std(torch.tensor([0.0, 1.0]), groups, counted=counted, ddof=2, eps=1e-4)
    assert found.tolist() == [0.0, 0.0]


def test_a_batch_of_equal_rewards_gives_zero_without_eps_too():
    groups, counted = torch.tensor([0, 0, 1]), torch.ones(3, dtype=torch.bool)
    found = batch_std(torch.full((3,), 0.1), groups, counted=counted, ddof=1, eps=0.0)
    assert found.tolist() == [0.0, 0.0, 0.0]
