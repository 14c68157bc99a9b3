import math

import pytest
import torch

from stages.algorithms.advantages.group_zscore import group_zscore

REWARDS = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
ONE_GROUP = torch.zeros(4, dtype=torch.long)
ALL = torch.ones(4, dtype=torch.bool)


def test_hand_worked_numbers():
    # (1, 0, 0, 1): mean 1/2, squares 4 * 1/4 = 1; ddof 0: std 1/2; ddof 1: std sqrt(1/3).
    found = group_zscore(REWARDS, ONE_GROUP, counted=ALL, ddof=0, eps=0.5)
    assert found.tolist() == [0.5, -0.5, -0.5, 0.5]
    side = 0.5 / (math.sqrt(1 / 3) + 0.1)
    found = group_zscore(REWARDS, ONE_GROUP, counted=ALL, ddof=1, eps=0.1)
    assert found.tolist() == pytest.approx([side, -side, -side, side])


def test_without_eps_a_groups_scale_does_not_matter_and_its_deviation_is_one():
    rewards = torch.rand(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    groups, counted = torch.arange(20) % 3, torch.ones(20, dtype=torch.bool)
    found = group_zscore(rewards, groups, counted=counted, ddof=1, eps=0.0)
    for group in range(3):
        assert found[groups == group].std().item() == pytest.approx(1.0)
    scaled = group_zscore(7 + 3 * rewards, groups, counted=counted, ddof=1, eps=0.0)
    torch.testing.assert_close(scaled, found)


def test_a_group_too_small_for_its_divisor_gets_zero():
    found = group_zscore(REWARDS[:2], ONE_GROUP[:2], counted=ALL[:2], ddof=2, eps=1e-4)
    assert found.tolist() == [0.0, 0.0]
