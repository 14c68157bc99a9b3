import math

import pytest
import torch

from stages.algorithms.group_advantage import group_zscore, without_signal


def test_hand_worked_numbers():
    # (1, 0, 0, 1): mean 1/2, squares 4 * 1/4 = 1; ddof 0: std 1/2; ddof 1: std sqrt(1/3).
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    assert group_zscore(rewards, ddof=0, eps=0.5)[0].tolist() == [0.5, -0.5, -0.5, 0.5]
    side = 0.5 / (math.sqrt(1 / 3) + 0.1)
    assert group_zscore(rewards, ddof=1, eps=0.1)[0].tolist() == pytest.approx(
        [side, -side, -side, side]
    )


def test_equal_rewards_give_exactly_zero_whatever_rounding_makes_of_their_mean():
    # The mean of three times 0.1 is not 0.1 in float32.
    rewards = torch.full((1, 3), 0.1)
    assert group_zscore(rewards, ddof=1, eps=1e-12).tolist() == [[0.0, 0.0, 0.0]]
    assert without_signal(rewards).tolist() == [True]


def test_one_different_reward_is_a_signal():
    assert without_signal(torch.tensor([[0.0, 0.0, 1.0], [2.0, 2.0, 2.0]])).tolist() == [
        False,
        True,
    ]


def test_groups_do_not_touch_each_other_and_order_within_does_not_matter():
    rewards = torch.rand(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = group_zscore(rewards, ddof=1, eps=1e-4)
    for i in range(5):
        torch.testing.assert_close(
            group_zscore(rewards[i : i + 1].flip(1), ddof=1, eps=1e-4).flip(1), whole[i : i + 1]
        )


def test_advantages_have_mean_0_and_without_eps_the_same_whatever_shift_and_scale():
    rewards = torch.rand(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    advantages = group_zscore(rewards, ddof=1, eps=0.0)
    torch.testing.assert_close(advantages.mean(1), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(advantages.std(1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(group_zscore(7 + 3 * rewards, ddof=1, eps=0.0), advantages)


def test_a_group_of_one_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"a group of 1 .* draw at least 2"):
        group_zscore(torch.ones(3, 1), ddof=1, eps=1e-4)
