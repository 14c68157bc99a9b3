"""Each advantage by hand, and what holds for every one that compares completions of a prompt."""

import math

import pytest
import torch

from stages.algorithms.group_advantages import (
    batch_std,
    greedy_baseline,
    group_centred,
    group_counts,
    group_means,
    group_stds,
    group_sums,
    group_zscore,
    leave_one_out,
    normalised_sum,
    weighted_sum,
    without_signal,
)


def test_batch_std_hand_worked_numbers():
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


REWARDS = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
GREEDY = torch.tensor([0.25, 1.0, 0.25], dtype=torch.float64)
GROUPS = torch.tensor([4, 9, 4])
ALL = torch.ones(3, dtype=torch.bool)


def test_greedy_baseline_hand_worked_numbers():
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


def test_group_centred_hand_worked_numbers():
    # 1.5, 1, 0, 0 have mean 0.625; 2 and 4 have mean 3.
    rewards = torch.tensor([1.5, 2.0, 1.0, 0.0, 4.0, 0.0], dtype=torch.float64)
    groups = torch.tensor([7, 3, 7, 7, 3, 7])
    found = group_centred(rewards, groups, counted=torch.ones(6, dtype=torch.bool))
    assert found.tolist() == [0.875, -1.0, 0.375, -0.625, 1.0, -0.625]


GROUP_ZSCORE_REWARDS = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
ONE_GROUP = torch.zeros(4, dtype=torch.long)
GROUP_ZSCORE_ALL = torch.ones(4, dtype=torch.bool)


def test_group_zscore_hand_worked_numbers():
    # (1, 0, 0, 1): mean 1/2, squares 4 * 1/4 = 1; ddof 0: std 1/2; ddof 1: std sqrt(1/3).
    found = group_zscore(GROUP_ZSCORE_REWARDS, ONE_GROUP, counted=GROUP_ZSCORE_ALL, ddof=0, eps=0.5)
    assert found.tolist() == [0.5, -0.5, -0.5, 0.5]
    side = 0.5 / (math.sqrt(1 / 3) + 0.1)
    found = group_zscore(GROUP_ZSCORE_REWARDS, ONE_GROUP, counted=GROUP_ZSCORE_ALL, ddof=1, eps=0.1)
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
    found = group_zscore(
        GROUP_ZSCORE_REWARDS[:2], ONE_GROUP[:2], counted=GROUP_ZSCORE_ALL[:2], ddof=2, eps=1e-4
    )
    assert found.tolist() == [0.0, 0.0]


def test_leave_one_out_hand_worked_numbers():
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


REWARD_PARTS_GROUPS = torch.tensor([0, 0, 1, 1])
REWARD_PARTS_ALL = torch.ones(4, dtype=torch.bool)


def test_the_weighted_sum_by_hand():
    parts = torch.tensor([[1.0, 2.0], [10.0, -10.0]])
    # 1 + 0.5 * 10; 2 - 0.5 * 10.
    assert weighted_sum(parts, torch.tensor([1.0, 0.5])).tolist() == [6.0, -3.0]


def test_the_normalised_sum_by_hand():
    # Within groups of two, ddof 0: every difference becomes (-1, 1) or (1, -1).
    #   part 0: (0, 1), (5, 9) -> (-1, 1), (-1, 1);  part 1: (100, 0), (3, 3) -> (1, -1), (0, 0)
    #   weights 1 and 2: (-1 + 2, 1 - 2), (-1, 1) = (1, -1, -1, 1)
    #   over the batch: mean 0, std 1.
    parts = torch.tensor([[0.0, 1.0, 5.0, 9.0], [100.0, 0.0, 3.0, 3.0]], dtype=torch.float64)
    weights = torch.tensor([1.0, 2.0], dtype=torch.float64)
    found = normalised_sum(
        parts, weights, REWARD_PARTS_GROUPS, counted=REWARD_PARTS_ALL, ddof=0, eps=0.0
    )
    assert found.tolist() == pytest.approx([1.0, -1.0, -1.0, 1.0])


def test_the_eps_enters_both_divisions():
    # One part (0, 2): std 1, eps 1 -> (-1/2, 1/2); of these std 1/2, eps 1 -> (-1/3, 1/3).
    parts, weights = torch.tensor([[0.0, 2.0]]), torch.ones(1)
    found = normalised_sum(
        parts, weights, REWARD_PARTS_GROUPS[:2], counted=REWARD_PARTS_ALL[:2], ddof=0, eps=1.0
    )
    assert found.tolist() == pytest.approx([-1 / 3, 1 / 3])


def test_a_parts_units_do_not_matter_but_its_weight_does():
    generator = torch.Generator().manual_seed(0)
    parts = torch.rand(2, 4, generator=generator, dtype=torch.float64)
    weights = torch.tensor([1.0, 0.3], dtype=torch.float64)
    settings = {"counted": REWARD_PARTS_ALL, "ddof": 1, "eps": 0.0}
    found = normalised_sum(parts, weights, REWARD_PARTS_GROUPS, **settings)
    units = torch.tensor([[1000.0], [0.01]], dtype=torch.float64)
    torch.testing.assert_close(
        normalised_sum(parts * units, weights, REWARD_PARTS_GROUPS, **settings), found
    )
    assert not torch.allclose(
        normalised_sum(parts, weights.flip(0), REWARD_PARTS_GROUPS, **settings), found
    )


def test_two_completions_with_one_sum_may_differ_in_advantage():
    # The first two sum to 1 both, but what the second did is the rarer:
    # z of (1, 0, 1, 0): +-1/2 / sqrt(1/3); of (0, 1, 0, 0): -1/4 or 3/4 over 1/2.
    parts = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    one_group, weights = torch.zeros(4, dtype=torch.long), torch.ones(2, dtype=torch.float64)
    first, second = math.sqrt(3) / 2 - 0.5, -math.sqrt(3) / 2 + 1.5
    found = normalised_sum(parts, weights, one_group, counted=REWARD_PARTS_ALL, ddof=1, eps=0.0)
    assert weighted_sum(parts, weights)[:2].tolist() == [1.0, 1.0]
    assert (found[1] / found[0]).item() == pytest.approx(second / first)


def test_a_group_without_signal_in_any_part_gets_exactly_zero():
    parts = torch.tensor([[0.1, 0.1, 0.1, 0.4, 0.9], [0.7, 0.7, 0.7, 0.2, 0.3]])
    groups, counted = torch.tensor([0, 0, 0, 1, 1]), torch.ones(5, dtype=torch.bool)
    found = normalised_sum(parts, torch.ones(2), groups, counted=counted, ddof=1, eps=1e-12)
    assert found[:3].tolist() == [0.0, 0.0, 0.0]
    assert found[3:].tolist() == [pytest.approx(-found[4].item()), found[4].item()]


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
def test_advantages_no_gradient_flows_through(advantage):
    rewards, groups, counted = make()
    assert not advantage(rewards.requires_grad_(), groups, counted=counted).requires_grad


# Two groups in mixed order, ids neither dense nor sorted: 7 has 1.5, 1, 0, 0 and 3 has 2, 4.
STATISTICS_REWARDS = torch.tensor([1.5, 2.0, 1.0, 0.0, 4.0, 0.0], dtype=torch.float64)
STATISTICS_GROUPS = torch.tensor([7, 3, 7, 7, 3, 7])
STATISTICS_ALL = torch.ones(6, dtype=torch.bool)


def test_group_statistics_hand_worked_numbers():
    # 1.5 + 1 + 0 + 0 = 2.5, over 4: 0.625; 2 + 4 = 6, over 2: 3.
    assert group_sums(STATISTICS_REWARDS, STATISTICS_GROUPS).tolist() == [
        2.5,
        6.0,
        2.5,
        2.5,
        6.0,
        2.5,
    ]
    assert group_counts(STATISTICS_GROUPS, counted=STATISTICS_ALL).tolist() == [4, 2, 4, 4, 2, 4]
    assert group_means(STATISTICS_REWARDS, STATISTICS_GROUPS, counted=STATISTICS_ALL).tolist() == [
        0.625, 3.0, 0.625, 0.625, 3.0, 0.625,
    ]  # fmt: skip


def test_standard_deviations_by_hand():
    # Group 3: squares 1 + 1 = 2; over 2: 1, over 1: sqrt 2.
    # Group 7: 0.875^2 + 0.375^2 + 2 x 0.625^2 = 1.6875; over 4, over 3.
    population = group_stds(STATISTICS_REWARDS, STATISTICS_GROUPS, counted=STATISTICS_ALL, ddof=0)
    sample = group_stds(STATISTICS_REWARDS, STATISTICS_GROUPS, counted=STATISTICS_ALL, ddof=1)
    assert population[:2].tolist() == pytest.approx([(1.6875 / 4) ** 0.5, 1.0])
    assert sample[:2].tolist() == pytest.approx([0.5625**0.5, 2.0**0.5])


def test_a_row_that_does_not_count_enters_nothing_not_even_as_nan():
    rewards = torch.where(torch.arange(6) == 4, torch.nan, STATISTICS_REWARDS)
    counted = torch.arange(6) != 4
    assert group_counts(STATISTICS_GROUPS, counted=counted).tolist() == [4, 1, 4, 4, 1, 4]
    assert group_means(rewards, STATISTICS_GROUPS, counted=counted)[1].item() == 2.0
    assert group_stds(rewards, STATISTICS_GROUPS, counted=counted, ddof=0)[1].item() == 0.0
    assert without_signal(rewards, STATISTICS_GROUPS, counted=counted).tolist() == [
        False, True, False, False, True, False,
    ]  # fmt: skip


def test_order_and_names_of_groups_do_not_matter():
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    for function in (group_means, without_signal):
        expected = function(STATISTICS_REWARDS, STATISTICS_GROUPS, counted=STATISTICS_ALL)[order]
        renamed = torch.where(STATISTICS_GROUPS == 7, 0, 2**60)[order]
        found = function(STATISTICS_REWARDS[order], renamed, counted=STATISTICS_ALL)
        torch.testing.assert_close(found, expected)


def test_a_group_too_small_for_its_divisor_has_no_deviation():
    two = torch.tensor([0.0, 1.0])
    found = group_stds(two, torch.tensor([5, 5]), counted=STATISTICS_ALL[:2], ddof=2)
    assert found.tolist() == [0.0, 0.0]


def test_a_difference_of_one_rounding_step_is_a_signal():
    rewards = torch.tensor([0.1, 0.1])
    groups = torch.zeros(2, dtype=torch.long)
    assert without_signal(rewards, groups, counted=STATISTICS_ALL[:2]).all()
    rewards[1] = torch.nextafter(rewards[1], torch.tensor(1.0))
    assert not without_signal(rewards, groups, counted=STATISTICS_ALL[:2]).any()


def test_nothing_counted_and_nothing_at_all():
    nothing = torch.zeros(6, dtype=torch.bool)
    assert group_means(STATISTICS_REWARDS, STATISTICS_GROUPS, counted=nothing).tolist() == [0.0] * 6
    assert (
        group_stds(STATISTICS_REWARDS, STATISTICS_GROUPS, counted=nothing, ddof=1).tolist()
        == [0.0] * 6
    )
    assert without_signal(STATISTICS_REWARDS, STATISTICS_GROUPS, counted=nothing).all()
    assert without_signal(
        STATISTICS_REWARDS[:0], STATISTICS_GROUPS[:0], counted=STATISTICS_ALL[:0]
    ).shape == (0,)
    assert group_means(
        STATISTICS_REWARDS[:0], STATISTICS_GROUPS[:0], counted=STATISTICS_ALL[:0]
    ).shape == (0,)
