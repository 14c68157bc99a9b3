"""What holds for every advantage that compares the completions of a prompt."""

import pytest
import torch

from stages.algorithms.advantages.batch_std import batch_std
from stages.algorithms.advantages.group_centred import group_centred
from stages.algorithms.advantages.group_zscore import group_zscore
from stages.algorithms.advantages.leave_one_out import leave_one_out
from stages.algorithms.advantages.reward_parts import normalised_sum


def zscore(rewards, groups, *, counted):
    return group_zscore(rewards, groups, counted=counted, ddof=1, eps=1e-4)


def batch(rewards, groups, *, counted):
    return batch_std(rewards, groups, counted=counted, ddof=1, eps=1e-4)


def parts(rewards, groups, *, counted):
    both = torch.stack([rewards, 3 * rewards])
    weights = torch.tensor([1.0, 0.5], dtype=rewards.dtype)
    return normalised_sum(both, weights, groups, counted=counted, ddof=1, eps=1e-4)


every_advantage = pytest.mark.parametrize(
    "advantage", [zscore, batch, parts, group_centred, leave_one_out]
)


def make(dtype=torch.float64):
    """30 completions of groups of 1 to 9, shuffled; every fifth does not count."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.repeat_interleave(torch.tensor([11, 2, 40, 5, 8]), torch.tensor([9, 8, 7, 5, 1]))
    groups = groups[torch.randperm(30, generator=generator)]
    rewards = torch.randn(30, generator=generator, dtype=dtype)
    return rewards, groups, torch.arange(30) % 5 != 0


@every_advantage
def test_equal_rewards_give_exactly_zero_whatever_rounding_makes_of_their_mean(advantage):
    # Seven times 0.1 added up in float32 and divided by 7 is not 0.1. Group 1 has a signal.
    rewards = torch.tensor([0.1] * 7 + [0.3, 0.7])
    groups = torch.tensor([0] * 7 + [1, 1])
    found = advantage(rewards, groups, counted=torch.ones(9, dtype=torch.bool))
    assert found[:7].tolist() == [0.0] * 7
    assert found[7].item() < 0 < found[8].item()


@every_advantage
def test_a_group_of_one_gets_exactly_zero(advantage):
    rewards, groups = torch.tensor([5.0, 1.0, 2.0]), torch.tensor([0, 1, 1])
    found = advantage(rewards, groups, counted=torch.ones(3, dtype=torch.bool))
    assert found[0].item() == 0.0
    alone = advantage(rewards[:1], groups[:1], counted=torch.ones(1, dtype=torch.bool))
    assert alone.tolist() == [0.0]


@every_advantage
def test_what_does_not_count_gets_zero_and_has_no_effect(advantage):
    rewards, groups, counted = make()
    found = advantage(torch.where(counted, rewards, torch.nan), groups, counted=counted)
    assert (found[~counted] == 0).all()
    kept = advantage(
        rewards[counted], groups[counted], counted=torch.ones(int(counted.sum()), dtype=torch.bool)
    )
    torch.testing.assert_close(found[counted], kept)


@every_advantage
def test_row_order_and_group_names_do_not_matter(advantage):
    rewards, groups, counted = make()
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    found = advantage(rewards[order], 1000 - groups[order], counted=counted[order])
    torch.testing.assert_close(found, advantage(rewards, groups, counted=counted)[order])


@every_advantage
def test_the_advantages_of_a_group_sum_to_zero_and_a_shift_of_its_rewards_changes_nothing(
    advantage,
):
    rewards, groups, counted = make()
    found = advantage(rewards, groups, counted=counted)
    for group in groups.unique():
        assert found[groups == group].sum().item() == pytest.approx(0.0, abs=1e-12)
    shifted = advantage(rewards + 7, groups, counted=counted)
    torch.testing.assert_close(shifted, found)


@every_advantage
def test_nothing_counted_and_no_row(advantage):
    rewards, groups, counted = make()
    assert advantage(rewards, groups, counted=torch.zeros_like(counted)).tolist() == [0.0] * 30
    assert advantage(rewards[:0], groups[:0], counted=counted[:0]).shape == (0,)


@every_advantage
def test_no_gradient_flows_through(advantage):
    rewards, groups, counted = make()
    assert not advantage(rewards.requires_grad_(), groups, counted=counted).requires_grad
