"""Each advantage by hand, and what holds for every one that compares completions of a prompt."""

import itertools
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
    has_equal_rewards,
    leave_one_out,
    mean_normalised,
    normalised_sum,
    weighted_sum,
)


def grid(*values):
    return torch.tensor(values, dtype=torch.float64)


def every(rewards):
    """All completions counted."""
    return torch.ones(len(rewards), dtype=torch.bool)


def one_group(rewards):
    return torch.zeros(len(rewards), dtype=torch.long)


def random(number):
    return torch.rand(number, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


# Two groups in mixed order, ids neither dense nor sorted: 7 has 1.5, 1, 0, 0 and 3 has 2, 4.
REWARDS = grid(1.5, 2.0, 1.0, 0.0, 4.0, 0.0)
GROUPS = torch.tensor([7, 3, 7, 7, 3, 7])
ALL = every(REWARDS)


def test_group_statistics_by_hand():
    # 1.5 + 1 + 0 + 0 = 2.5, over 4: 0.625; 2 + 4 = 6, over 2: 3.
    assert group_sums(REWARDS, GROUPS).tolist() == [2.5, 6.0, 2.5, 2.5, 6.0, 2.5]
    assert group_counts(GROUPS, counted=ALL).tolist() == [4, 2, 4, 4, 2, 4]
    means = group_means(REWARDS, GROUPS, counted=ALL)
    assert means.tolist() == [0.625, 3.0, 0.625, 0.625, 3.0, 0.625]
    # Group 3: squares 1 + 1 = 2; over 2: 1, over 1: sqrt 2.
    # Group 7: 0.875^2 + 0.375^2 + 2 x 0.625^2 = 1.6875; over 4, over 3.
    population = group_stds(REWARDS, GROUPS, counted=ALL, ddof=0)
    sample = group_stds(REWARDS, GROUPS, counted=ALL, ddof=1)
    assert population[:2].tolist() == pytest.approx([(1.6875 / 4) ** 0.5, 1.0])
    assert sample[:2].tolist() == pytest.approx([0.5625**0.5, 2.0**0.5])
    # A group too small for its divisor has no deviation.
    two = torch.tensor([0.0, 1.0])
    assert group_stds(two, one_group(two), counted=every(two), ddof=2).tolist() == [0.0, 0.0]


def test_a_row_that_does_not_count_enters_no_statistic_not_even_as_nan():
    counted = torch.arange(6) != 4
    rewards = torch.where(counted, REWARDS, torch.nan)
    assert group_counts(GROUPS, counted=counted).tolist() == [4, 1, 4, 4, 1, 4]
    assert group_means(rewards, GROUPS, counted=counted)[1].item() == 2.0
    assert group_stds(rewards, GROUPS, counted=counted, ddof=0)[1].item() == 0.0
    silent = has_equal_rewards(rewards, GROUPS, counted=counted)
    assert silent.tolist() == [False, True, False, False, True, False]


def test_statistics_do_not_depend_on_the_order_or_the_ids_of_groups():
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    renamed = torch.where(GROUPS == 7, 0, 2**60)
    for function in (group_means, has_equal_rewards):
        expected = function(REWARDS, GROUPS, counted=ALL)[order]
        statistic = function(REWARDS[order], renamed[order], counted=ALL)
        torch.testing.assert_close(statistic, expected)


def test_statistics_of_nothing_counted_and_of_no_row():
    nothing = torch.zeros_like(ALL)
    assert group_means(REWARDS, GROUPS, counted=nothing).tolist() == [0.0] * 6
    assert group_stds(REWARDS, GROUPS, counted=nothing, ddof=1).tolist() == [0.0] * 6
    assert has_equal_rewards(REWARDS, GROUPS, counted=nothing).all()
    for function in (group_means, has_equal_rewards):
        assert function(REWARDS[:0], GROUPS[:0], counted=ALL[:0]).shape == (0,)


def test_a_difference_of_one_rounding_step_is_a_signal():
    rewards = torch.tensor([0.1, 0.1])
    assert has_equal_rewards(rewards, one_group(rewards), counted=every(rewards)).all()
    rewards[1] = torch.nextafter(rewards[1], torch.tensor(1.0))
    assert not has_equal_rewards(rewards, one_group(rewards), counted=every(rewards)).any()


def test_group_zscore_by_hand():
    # (1, 0, 0, 1): mean 1/2, squares 4 * 1/4 = 1; ddof 0: std 1/2; ddof 1: std sqrt(1/3).
    rewards = grid(1.0, 0.0, 0.0, 1.0)
    inputs = {"groups": one_group(rewards), "counted": every(rewards)}
    assert group_zscore(rewards, **inputs, ddof=0, eps=0.5).tolist() == [0.5, -0.5, -0.5, 0.5]
    side = 0.5 / (math.sqrt(1 / 3) + 0.1)
    zscores = group_zscore(rewards, **inputs, ddof=1, eps=0.1)
    assert zscores.tolist() == pytest.approx([side, -side, -side, side])


def test_without_eps_a_groups_scale_does_not_matter_and_its_deviation_is_one():
    rewards, groups = random(20), torch.arange(20) % 3
    zscores = group_zscore(rewards, groups, counted=every(rewards), ddof=1, eps=0.0)
    for group in range(3):
        assert zscores[groups == group].std().item() == pytest.approx(1.0)
    scaled = group_zscore(7 + 3 * rewards, groups, counted=every(rewards), ddof=1, eps=0.0)
    torch.testing.assert_close(scaled, zscores)


def test_group_centred_by_hand():
    # 1.5, 1, 0, 0 have mean 0.625; 2 and 4 have mean 3.
    advantages = group_centred(REWARDS, GROUPS, counted=ALL)
    assert advantages.tolist() == [0.875, -1.0, 0.375, -0.625, 1.0, -0.625]


def test_mean_normalised_by_hand():
    # (1, 0, 0, 1, 0): mean 2/5, so a right one has 3/2 and a wrong one -1.
    rewards = grid(1.0, 0.0, 0.0, 1.0, 0.0)
    inputs = {"groups": one_group(rewards), "counted": every(rewards)}
    advantages = mean_normalised(rewards, **inputs, eps=0.0)
    assert advantages.tolist() == pytest.approx([1.5, -1.0, -1.0, 1.5, -1.0])
    assert mean_normalised(rewards, **inputs, eps=0.1).tolist()[0] == pytest.approx(1.2)
    with pytest.raises(ValueError, match="found -1"):
        mean_normalised(rewards - 1, **inputs, eps=0.0)


def test_mean_normalised_is_maximum_likelihood_to_the_order_of_the_group():
    """Expected gradient of a Bernoulli policy against that of -sum_{k<n} (1 - p)^k / k."""
    n, p = 4, 0.3
    total = 0.0
    for bits in itertools.product((0.0, 1.0), repeat=n):
        rewards = torch.tensor(bits, dtype=torch.float64)
        advantages = mean_normalised(rewards, one_group(rewards), counted=every(rewards), eps=0.0)
        # d log p(r) / d logit = r - p
        gradient = (advantages * (rewards - p)).mean().item()
        total += math.prod(p if bit else 1 - p for bit in bits) * gradient
    # d/dp of the sum is sum_{k<n} (1 - p)^(k - 1), dp / d logit = p (1 - p).
    expected = p * (1 - p) * sum((1 - p) ** (k - 1) for k in range(1, n))
    assert total == pytest.approx(expected, rel=1e-12)


def test_batch_std_by_hand():
    # Groups (0, 2) and (6, 8) centred: (-1, 1) and (-1, 1). The batch 0, 2, 6, 8 has mean 4,
    # squares 16 + 4 + 4 + 16 = 40: std sqrt(10) with ddof 0, sqrt(40 / 3) with ddof 1.
    rewards, groups = grid(0.0, 2.0, 6.0, 8.0), torch.tensor([0, 0, 1, 1])
    for ddof, eps, side in ((0, 0.5, 1 / (math.sqrt(10) + 0.5)), (1, 0.0, 1 / math.sqrt(40 / 3))):
        advantages = batch_std(rewards, groups, counted=every(rewards), ddof=ddof, eps=eps)
        assert advantages.tolist() == pytest.approx([-side, side, -side, side])


def test_batch_std_of_one_group_is_the_z_score():
    rewards = random(6)
    advantages = batch_std(rewards, one_group(rewards), counted=every(rewards), ddof=1, eps=0.0)
    torch.testing.assert_close(advantages, (rewards - rewards.mean()) / rewards.std())


@pytest.mark.parametrize("advantage", [batch_std, group_zscore])
def test_too_few_rewards_for_the_divisor_and_equal_ones_without_eps_give_zero(advantage):
    two, equal = torch.tensor([0.0, 1.0]), torch.full((3,), 0.1)
    few = advantage(two, one_group(two), counted=every(two), ddof=2, eps=1e-4)
    assert few.tolist() == [0.0, 0.0]
    groups = torch.tensor([0, 0, 1])
    silent = advantage(equal, groups, counted=every(equal), ddof=1, eps=0.0)
    assert silent.tolist() == [0.0, 0.0, 0.0]


def test_leave_one_out_by_hand():
    # The others of 1.5 are 1, 0, 0: 1.5 - 1/3; of 1: 1 - 1.5/3 = 0.5; of 0: 0 - 2.5/3.
    rewards = grid(1.5, 1.0, 0.0, 0.0)
    advantages = leave_one_out(rewards, torch.full((4,), 9), counted=every(rewards))
    assert advantages.tolist() == pytest.approx([7 / 6, 0.5, -5 / 6, -5 / 6])


def test_leave_one_out_is_the_centred_reward_times_n_over_n_minus_1():
    rewards = random(5)
    advantages = leave_one_out(rewards, one_group(rewards), counted=every(rewards))
    torch.testing.assert_close(advantages, (rewards - rewards.mean()) * 5 / 4)


def test_the_baseline_of_leave_one_out_does_not_depend_on_the_completion_itself():
    rewards = grid(1.0, 2.0, 6.0)
    before = leave_one_out(rewards, one_group(rewards), counted=every(rewards))
    rewards[0] += 10
    # Its own advantage grows by all 10; the others' baselines by 10 / 2.
    change = leave_one_out(rewards, one_group(rewards), counted=every(rewards)) - before
    assert change.tolist() == [10.0, -5.0, -5.0]


GREEDY_GROUPS = torch.tensor([4, 9, 4])
SAMPLED, GREEDY = grid(1.0, 0.0, 0.5), grid(0.25, 1.0, 0.25)


def test_greedy_baseline_by_hand():
    # 1 - 0.25, 0 - 1, 0.5 - 0.25. Group 9 is one completion, and has an advantage.
    settings = {"groups": GREEDY_GROUPS, "counted": every(SAMPLED), "greedy_rewards": GREEDY}
    assert greedy_baseline(SAMPLED, **settings).tolist() == [0.75, -1.0, 0.25]
    assert greedy_baseline(GREEDY, **settings).tolist() == [0.0, 0.0, 0.0]
    inputs = [SAMPLED.clone().requires_grad_(), GREEDY.clone().requires_grad_()]
    settings["greedy_rewards"] = inputs[1]
    assert not greedy_baseline(inputs[0], **settings).requires_grad


def test_the_greedy_baseline_of_what_does_not_count_is_zero_even_if_nan():
    counted = torch.tensor([True, False, True])
    sampled, greedy = (torch.where(counted, values, torch.nan) for values in (SAMPLED, GREEDY))
    advantages = greedy_baseline(sampled, GREEDY_GROUPS, counted=counted, greedy_rewards=greedy)
    assert advantages.tolist() == [0.75, 0.0, 0.25]


def test_different_greedy_rewards_within_a_prompt_are_refused():
    with pytest.raises(ValueError, match="one greedy reward a prompt"):
        greedy_baseline(
            SAMPLED, GREEDY_GROUPS, counted=every(SAMPLED), greedy_rewards=grid(0.0, 1.0, 2.0)
        )


def test_the_weighted_sum_by_hand():
    parts = torch.tensor([[1.0, 2.0], [10.0, -10.0]])
    # 1 + 0.5 * 10; 2 - 0.5 * 10.
    assert weighted_sum(parts, torch.tensor([1.0, 0.5])).tolist() == [6.0, -3.0]


PAIRS = {"groups": torch.tensor([0, 0, 1, 1]), "counted": torch.ones(4, dtype=torch.bool)}


def test_the_normalised_sum_by_hand():
    # Within groups of two, ddof 0: every difference becomes (-1, 1) or (1, -1).
    #   part 0: (0, 1), (5, 9) -> (-1, 1), (-1, 1);  part 1: (100, 0), (3, 3) -> (1, -1), (0, 0)
    #   weights 1 and 2: (-1 + 2, 1 - 2), (-1, 1) = (1, -1, -1, 1)
    #   over the batch: mean 0, std 1.
    parts = torch.stack([grid(0.0, 1.0, 5.0, 9.0), grid(100.0, 0.0, 3.0, 3.0)])
    advantages = normalised_sum(parts, grid(1.0, 2.0), **PAIRS, ddof=0, eps=0.0)
    assert advantages.tolist() == pytest.approx([1.0, -1.0, -1.0, 1.0])
    # One part (0, 2): std 1, eps 1 -> (-1/2, 1/2); of these std 1/2, eps 1 -> (-1/3, 1/3).
    pair = grid(0.0, 2.0)
    advantages = normalised_sum(
        pair[None], grid(1.0), one_group(pair), counted=every(pair), ddof=0, eps=1.0
    )
    assert advantages.tolist() == pytest.approx([-1 / 3, 1 / 3])


def test_a_parts_units_do_not_matter_but_its_weight_does():
    parts, weights = random(8).view(2, 4), grid(1.0, 0.3)
    settings = PAIRS | {"ddof": 1, "eps": 0.0}
    advantages = normalised_sum(parts, weights, **settings)
    rescaled = normalised_sum(parts * grid(1000.0, 0.01)[:, None], weights, **settings)
    torch.testing.assert_close(rescaled, advantages)
    assert not torch.allclose(normalised_sum(parts, weights.flip(0), **settings), advantages)


def test_two_completions_with_one_sum_may_differ_in_advantage():
    # The first two sum to 1 both, but what the second did is the rarer:
    # z of (1, 0, 1, 0): +-1/2 / sqrt(1/3); of (0, 1, 0, 0): -1/4 or 3/4 over 1/2.
    parts, weights = torch.stack([grid(1.0, 0.0, 1.0, 0.0), grid(0.0, 1.0, 0.0, 0.0)]), grid(1, 1)
    first, second = math.sqrt(3) / 2 - 0.5, -math.sqrt(3) / 2 + 1.5
    advantages = normalised_sum(
        parts, weights, one_group(parts[0]), counted=every(parts[0]), ddof=1, eps=0.0
    )
    assert weighted_sum(parts, weights)[:2].tolist() == [1.0, 1.0]
    assert (advantages[1] / advantages[0]).item() == pytest.approx(second / first)


def test_a_group_without_signal_in_any_part_gets_exactly_zero():
    parts = torch.tensor([[0.1, 0.1, 0.1, 0.4, 0.9], [0.7, 0.7, 0.7, 0.2, 0.3]])
    groups = torch.tensor([0, 0, 0, 1, 1])
    advantages = normalised_sum(
        parts, torch.ones(2), groups, counted=every(groups), ddof=1, eps=1e-12
    )
    assert advantages[:3].tolist() == [0.0, 0.0, 0.0]
    assert advantages[3:].tolist() == [pytest.approx(-advantages[4].item()), advantages[4].item()]


def zscore(rewards, groups, *, counted):
    return group_zscore(rewards, groups, counted=counted, ddof=1, eps=1e-4)


def batch(rewards, groups, *, counted):
    return batch_std(rewards, groups, counted=counted, ddof=1, eps=1e-4)


def ratio(rewards, groups, *, counted):
    return mean_normalised(rewards.abs(), groups, counted=counted, eps=1e-4)


def parts(rewards, groups, *, counted):
    both, weights = torch.stack([rewards, 3 * rewards]), torch.tensor([1.0, 0.5]).to(rewards.dtype)
    return normalised_sum(both, weights, groups, counted=counted, ddof=1, eps=1e-4)


every_advantage = pytest.mark.parametrize(
    "advantage", [zscore, batch, parts, ratio, group_centred, leave_one_out]
)


def completions():
    """30 completions of groups of 1 to 9, shuffled; every fifth does not count."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.repeat_interleave(torch.tensor([11, 2, 40, 5, 8]), torch.tensor([9, 8, 7, 5, 1]))
    groups = groups[torch.randperm(30, generator=generator)]
    rewards = torch.randn(30, generator=generator, dtype=torch.float64)
    return rewards, groups, torch.arange(30) % 5 != 0


@every_advantage
def test_equal_rewards_give_exactly_zero_whatever_rounding_makes_of_their_mean(advantage):
    # Seven times 0.1 added up in float32 and divided by 7 is not 0.1. Group 1 has a signal.
    rewards, groups = torch.tensor([0.1] * 7 + [0.3, 0.7]), torch.tensor([0] * 7 + [1, 1])
    advantages = advantage(rewards, groups, counted=every(rewards))
    assert advantages[:7].tolist() == [0.0] * 7
    assert advantages[7].item() < 0 < advantages[8].item()


@every_advantage
def test_a_group_of_one_gets_exactly_zero(advantage):
    rewards, groups = torch.tensor([5.0, 1.0, 2.0]), torch.tensor([0, 1, 1])
    for number in (3, 1):
        counted = every(rewards[:number])
        assert advantage(rewards[:number], groups[:number], counted=counted)[0].item() == 0.0


@every_advantage
def test_what_does_not_count_gets_zero_and_has_no_effect(advantage):
    rewards, groups, counted = completions()
    advantages = advantage(torch.where(counted, rewards, torch.nan), groups, counted=counted)
    assert (advantages[~counted] == 0).all()
    alone = advantage(rewards[counted], groups[counted], counted=counted[counted])
    torch.testing.assert_close(advantages[counted], alone)


@every_advantage
def test_row_order_and_group_names_do_not_matter(advantage):
    rewards, groups, counted = completions()
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    advantages = advantage(rewards[order], 1000 - groups[order], counted=counted[order])
    torch.testing.assert_close(advantages, advantage(rewards, groups, counted=counted)[order])


@every_advantage
def test_a_groups_advantages_sum_to_zero_and_a_shift_of_its_rewards_changes_nothing(advantage):
    """Except for what divides by their mean, which a shift changes."""
    rewards, groups, counted = completions()
    advantages = advantage(rewards.requires_grad_(), groups, counted=counted)
    assert not advantages.requires_grad
    for group in groups.unique():
        assert advantages[groups == group].sum().item() == pytest.approx(0.0, abs=1e-12)
    if advantage is not ratio:
        torch.testing.assert_close(advantage(rewards + 7, groups, counted=counted), advantages)


@every_advantage
def test_nothing_counted_and_no_row(advantage):
    rewards, groups, counted = completions()
    assert advantage(rewards, groups, counted=torch.zeros_like(counted)).tolist() == [0.0] * 30
    assert advantage(rewards[:0], groups[:0], counted=counted[:0]).shape == (0,)
