"""What holds of every advantage: of completions in groups (GROUPED), and of tokens (TOKENS).

Numbers by hand are in test_by_hand.py. A new advantage is a row here, too.
"""

import itertools
import math

import pytest
import torch

from stages.algorithms import group_advantages as grouped
from stages.algorithms import token_advantages as tokens

NUMBERS = {"ddof": 1, "eps": 1e-4}


def of_components(rewards, groups, *, counted):
    both, weights = torch.stack([rewards, 3 * rewards]), torch.tensor([1.0, 0.5]).to(rewards.dtype)
    return grouped.normalised_sum(both, weights, groups, counted=counted, **NUMBERS)


GROUPED = {
    grouped.group_zscore: lambda r, g, counted: grouped.group_zscore(
        r, g, counted=counted, **NUMBERS),
    grouped.batch_std: lambda r, g, counted: grouped.batch_std(r, g, counted=counted, **NUMBERS),
    grouped.normalised_sum: of_components,
    grouped.mean_normalised: lambda r, g, counted: grouped.mean_normalised(
        r.abs(), g, counted=counted, eps=1e-4),
    grouped.group_centred: grouped.group_centred,
    grouped.leave_one_out: grouped.leave_one_out,
}  # fmt: skip
STATISTICS = {grouped.group_sums, grouped.group_counts, grouped.group_means, grouped.group_stds,
    grouped.has_equal_rewards, grouped.weighted_sum}  # fmt: skip
OTHER_BASELINE = {grouped.greedy_baseline}
"""Not compared with the group."""
MASK = torch.arange(5)[None] < torch.tensor([[5], [1], [3], [2]])
ENDS = MASK & torch.tensor([[1, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 0, 0, 0]]) > 0


def of_steps(rewards, _, mask, groups):
    counted = torch.ones(len(groups), dtype=torch.bool)
    return tokens.step_zscore(rewards, mask, groups, counted=counted, ddof=1, eps=1e-4)


TOKENS = {
    tokens.returns_to_go: lambda r, _, mask, __: tokens.returns_to_go(r, mask, gamma=0.9),
    tokens.gae: lambda r, v, mask, groups: torch.cat(
        tokens.gae(r, v, mask, gamma=0.9, lam=groups / 10), 1),
    tokens.step_zscore: of_steps,
    tokens.min_credit: lambda r, _, mask, __: tokens.min_credit(r, mask)[0],
    tokens.teacher_log_ratio: lambda r, v, mask, _: tokens.teacher_log_ratio(r, v, mask),
}  # fmt: skip
AT_STEPS = (tokens.step_zscore, tokens.min_credit)
OF_LENGTHS = {tokens.length_adaptive_lambda}
every_group = pytest.mark.parametrize("advantage", GROUPED.values(),
    ids=[f.__name__ for f in GROUPED])  # fmt: skip


def test_every_advantage_has_a_row():
    for module, known in (
        (grouped, {*GROUPED, *STATISTICS, *OTHER_BASELINE}), (tokens, {*TOKENS, *OF_LENGTHS}),
    ):  # fmt: skip
        public = {
            function
            for name, function in vars(module).items()
            if callable(function) and name.islower() and not name.startswith("_")
            if getattr(function, "__module__", "") == module.__name__
        }
        assert public == known


def draw(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def every(rewards):
    return torch.ones(len(rewards), dtype=torch.bool)


def completions():
    """30 completions in groups of 1 to 9, shuffled; every fifth does not count."""
    groups = torch.repeat_interleave(torch.tensor([11, 2, 40, 5, 8]), torch.tensor([9, 8, 7, 5, 1]))
    groups = groups[torch.randperm(30, generator=torch.Generator().manual_seed(0))]
    return draw(30), groups, torch.arange(30) % 5 != 0


@every_group
def test_equal_rewards_and_groups_of_one_give_exactly_zero(advantage):
    # Seven times 0.1 in float32, divided by 7, is not 0.1. Group 1 has a signal, group 2 one row.
    rewards = torch.tensor([0.1] * 7 + [0.3, 0.7, 0.4])
    groups = torch.tensor([0] * 7 + [1, 1, 2])
    result = advantage(rewards, groups, counted=every(rewards))
    assert result[:7].tolist() == [0.0] * 7
    assert result[7].item() < 0 < result[8].item()
    # Several components have a common mean over the batch, which moves what has a signal alone.
    assert result[9].item() == 0.0
    assert advantage(rewards[:1], groups[:1], counted=every(rewards[:1])).item() == 0.0


@every_group
def test_uncounted_completions_have_zero_and_no_effect(advantage):
    rewards, groups, counted = completions()
    result = advantage(torch.where(counted, rewards, torch.nan), groups, counted=counted)
    assert (result[~counted] == 0).all()
    alone = advantage(rewards[counted], groups[counted], counted=counted[counted])
    torch.testing.assert_close(result[counted], alone)
    assert not advantage(rewards, groups, counted=torch.zeros_like(counted)).any()
    assert advantage(rewards[:0], groups[:0], counted=counted[:0]).shape == (0,)


@every_group
def test_row_order_and_group_ids_do_not_matter(advantage):
    rewards, groups, counted = completions()
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    renamed = torch.where(groups == 40, 2**60, 1000 - groups)
    result = advantage(rewards[order], renamed[order], counted=counted[order])
    torch.testing.assert_close(result, advantage(rewards, groups, counted=counted)[order])


@every_group
def test_a_group_sums_to_zero_without_gradient_and_a_shift_changes_nothing(advantage):
    rewards, groups, counted = completions()
    result = advantage(rewards.requires_grad_(), groups, counted=counted)
    assert not result.requires_grad
    for group in groups.unique():
        assert result[groups == group].sum().item() == pytest.approx(0.0, abs=1e-12)
    if advantage is not GROUPED[grouped.mean_normalised]:  # divides by what a shift changes
        torch.testing.assert_close(advantage(rewards + 7, groups, counted=counted), result)


@pytest.mark.parametrize("function", [grouped.group_zscore, grouped.batch_std])
def test_too_few_rewards_for_the_divisor_give_zero(function):
    rewards, groups = torch.tensor([0.0, 1.0]), torch.zeros(2, dtype=torch.long)
    assert not function(rewards, groups, counted=every(rewards), ddof=2, eps=1e-4).any()
    equal = torch.full((3,), 0.1)
    silent = function(equal, torch.tensor([0, 0, 1]), counted=every(equal), ddof=1, eps=0.0)
    assert silent.tolist() == [0.0] * 3


def test_greedy_baselines_have_no_gradient_and_give_zero_where_equal():
    groups, greedy = torch.tensor([4, 9, 4]), torch.tensor([0.25, 1.0, 0.25], requires_grad=True)
    sampled = greedy.detach().clone().requires_grad_()
    result = grouped.greedy_baseline(sampled, groups, counted=every(groups), greedy_rewards=greedy)
    assert not result.requires_grad
    assert result.tolist() == [0.0] * 3


def test_mean_normalised_is_maximum_likelihood_to_the_order_of_the_group():
    """Expected gradient of a Bernoulli policy against that of -sum_{k<n} (1 - p)^k / k."""
    n, p, total = 4, 0.3, 0.0
    for bits in itertools.product((0.0, 1.0), repeat=n):
        rewards = torch.tensor(bits, dtype=torch.float64)
        groups = torch.zeros(n, dtype=torch.long)
        result = grouped.mean_normalised(rewards, groups, counted=every(rewards), eps=0.0)
        # d log p(r) / d logit = r - p
        gradient = (result * (rewards - p)).mean().item()
        total += math.prod(p if bit else 1 - p for bit in bits) * gradient
    expected = p * (1 - p) * sum((1 - p) ** (k - 1) for k in range(1, n))
    assert total == pytest.approx(expected, rel=1e-12)


def test_the_units_of_a_component_do_not_matter_but_its_weight_does():
    parts, weights = draw((2, 4)), torch.tensor([1.0, 0.3], dtype=torch.float64)
    groups = torch.zeros(4, dtype=torch.long)
    settings = {"groups": groups, "counted": every(groups), "ddof": 1, "eps": 0.0}
    result = grouped.normalised_sum(parts, weights, **settings)
    scales = torch.tensor([[1000.0], [0.01]])
    torch.testing.assert_close(grouped.normalised_sum(parts * scales, weights, **settings), result)
    assert not torch.allclose(grouped.normalised_sum(parts, weights.flip(0), **settings), result)


def test_a_group_is_silent_where_no_component_has_a_signal():
    parts = torch.tensor([[0.1, 0.1, 0.1, 0.4, 0.9, 0.4], [0.7, 0.7, 0.7, 0.2, 0.2, 0.9]])
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    result = grouped.normalised_sum(parts, torch.ones(2), groups, counted=every(groups), ddof=1,
        eps=1e-12)  # fmt: skip
    assert result[:3].tolist() == [0.0] * 3
    assert result[3:].all()
    # The second component alone tells the completions of group 1 apart.
    second = torch.stack([torch.ones(6), parts[1]])
    result = grouped.normalised_sum(second, torch.ones(2), groups, counted=every(groups), ddof=1,
        eps=1e-12)  # fmt: skip
    assert result[3:].all()


@pytest.mark.parametrize("function", TOKENS, ids=lambda function: function.__name__)
def test_padding_and_row_order_do_not_matter_and_there_is_no_gradient(function):
    mask = ENDS if function in AT_STEPS else MASK
    groups, order = torch.tensor([7, 3, 7, 3]), torch.tensor([2, 0, 3, 1])
    inputs = [draw((4, 5), seed).requires_grad_() for seed in (0, 1)]
    result = TOKENS[function](*inputs, mask, groups)
    assert not result.requires_grad
    wide = [torch.cat([x.detach(), torch.full((4, 3), torch.nan).double()], 1)[order]
        for x in inputs]  # fmt: skip
    further = torch.cat([mask, torch.zeros(4, 3, dtype=torch.bool)], 1)[order]
    other = TOKENS[function](*wide, further, groups[order]).view(4, -1, 8)
    torch.testing.assert_close(other[:, :, :5].reshape(4, -1), result[order], rtol=1e-12,
        atol=1e-12)  # fmt: skip
    assert not other[:, :, 5:].any()


def test_returns_are_the_advantages_of_a_value_of_zero_and_a_perfect_value_has_none():
    rewards, values = draw((4, 5)), draw((4, 5), 1)
    advantages, _ = tokens.gae(rewards, torch.zeros_like(rewards), MASK, gamma=0.9, lam=1.0)
    torch.testing.assert_close(tokens.returns_to_go(rewards, MASK, gamma=0.9), advantages)
    _, returns = tokens.gae(rewards, values, MASK, gamma=0.9, lam=1.0)
    for lam in (0.0, 0.5, 1.0):
        advantages, _ = tokens.gae(rewards, returns, MASK, gamma=0.9, lam=lam)
        torch.testing.assert_close(advantages, torch.zeros_like(advantages))
    lam = torch.tensor([0.5] * 4, requires_grad=True)
    assert not tokens.gae(rewards, values, MASK, gamma=0.9, lam=lam)[0].requires_grad


def test_adaptive_lambdas_sum_to_alpha_times_the_length():
    lam = tokens.length_adaptive_lambda(torch.tensor([200]), alpha=0.05).double().item()
    assert sum(lam**k for k in range(1000)) == pytest.approx(0.05 * 200, rel=1e-5)


@pytest.mark.parametrize("ddof", [0, 1])
def test_single_steps_have_the_z_score_of_outcomes(ddof):
    outcomes, groups = draw(6), torch.tensor([0, 1, 0, 1, 0, 0])
    lengths = torch.tensor([3, 1, 4, 2, 4, 1])[:, None]
    counted = torch.tensor([True, True, True, True, False, True])
    ends = torch.arange(5) == lengths - 1
    grid = torch.where(ends, outcomes[:, None], 50.0)
    settings = {"counted": counted, "ddof": ddof, "eps": 1e-4}
    flat = grouped.group_zscore(outcomes, groups, **settings)
    result = tokens.step_zscore(grid, ends, groups, **settings)
    torch.testing.assert_close(result, flat[:, None] * (torch.arange(5) < lengths))
    assert not tokens.step_zscore(grid, torch.zeros_like(ends), groups, **settings).any()


def test_min_credit_is_the_limit_of_its_published_weights_and_is_paid_at_its_step():
    rewards = torch.tensor([[0.9, 0.3, 0.6]])
    paid, at = tokens.min_credit(rewards, torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(paid, torch.softmax(-rewards / 0.001, 1) * rewards)
    assert at.tolist() == [[False, True, False]]
