"""What numbers by hand (test_by_hand.py) and formulas (loops/test_advantages.py) do not show.

Gradients, identities with other quantities, and sums of several components.
"""

import itertools
import math

import pytest
import torch

from stages.algorithms import group_advantages as grouped
from stages.algorithms import token_advantages as tokens

NUMBERS = {"ddof": 1, "eps": 1e-4}
MASK = torch.arange(5)[None] < torch.tensor([[5], [1], [3], [2]])
ENDS = MASK & torch.tensor([[1, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 0, 0, 0]]) > 0
TOKENS = {
    tokens.returns_to_go: lambda r, _, __: tokens.returns_to_go(r, MASK, gamma=0.9),
    tokens.gae: lambda r, v, groups: torch.cat(
        tokens.gae(r, v, MASK, gamma=0.9, lam=(groups / 10).requires_grad_()), 1),
    tokens.step_zscore: lambda r, _, groups: tokens.step_zscore(
        r, ENDS, groups, counted=every(r), **NUMBERS),
    tokens.min_credit: lambda r, _, __: tokens.min_credit(r, ENDS)[0],
    tokens.teacher_log_ratio: lambda r, v, _: tokens.teacher_log_ratio(r, v, MASK),
}  # fmt: skip


def draw(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def every(rewards):
    return torch.ones(len(rewards), dtype=torch.bool)


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (grouped.group_zscore, NUMBERS), (grouped.batch_std, NUMBERS),
        (grouped.mean_normalised, {"eps": 1e-4}), (grouped.group_centred, {}),
        (grouped.leave_one_out, {}),
    ],
)  # fmt: skip
def test_advantages_of_groups_have_no_gradient(function, numbers):
    rewards = draw(6, 1).abs().requires_grad_()
    result = function(rewards, torch.arange(6) % 2, counted=every(rewards), **numbers)
    assert result.any()
    assert not result.requires_grad


def test_a_greedy_baseline_has_no_gradient():
    rewards, greedy = (draw(6, seed).requires_grad_() for seed in (0, 1))
    result = grouped.greedy_baseline(rewards, counted=every(rewards), greedy_rewards=greedy)
    assert not result.requires_grad


@pytest.mark.parametrize("function", TOKENS, ids=lambda function: function.__name__)
def test_masked_tokens_reach_no_advantage_which_has_no_gradient(function):
    groups = torch.tensor([7, 3, 7, 3])
    expected, actual = (
        TOKENS[function](
            *(torch.where(MASK, draw((4, 5), seed), filler).requires_grad_() for seed in (0, 1)),
            groups,
        )
        for filler in (0.0, torch.nan)
    )
    assert not actual.requires_grad
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("function", [grouped.group_zscore, grouped.batch_std])
def test_too_few_rewards_for_the_divisor_give_zero(function):
    rewards, groups = torch.tensor([0.0, 1.0]), torch.zeros(2, dtype=torch.long)
    assert not function(rewards, groups, counted=every(rewards), ddof=2, eps=1e-4).any()
    equal = torch.full((3,), 0.1)
    silent = function(equal, torch.tensor([0, 0, 1]), counted=every(equal), ddof=1, eps=0.0)
    assert silent.tolist() == [0.0] * 3


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


def test_a_group_is_silent_where_no_component_has_a_signal_in_what_counts():
    # Seven times 0.1 in float32, divided by 7, is not 0.1.
    first = torch.tensor([0.1] * 7 + [0.4, 0.9, 0.4, torch.nan])
    second = torch.tensor([0.7] * 7 + [0.2, 0.2, 0.9, torch.nan])
    groups, counted = torch.tensor([0] * 7 + [1] * 4), torch.arange(11) < 10
    settings = {"groups": groups, "counted": counted, "ddof": 1, "eps": 1e-12}
    # The second component alone tells the completions of group 1 apart.
    for parts in (torch.stack([first, second]), torch.stack([torch.ones(11), second])):
        result = grouped.normalised_sum(parts, torch.ones(2), **settings)
        assert result[7:10].all()
        assert result[groups == 0].tolist() + result[10:].tolist() == [0.0] * 8


def test_returns_are_the_advantages_of_a_value_of_zero_and_a_perfect_value_has_none():
    rewards, values = draw((4, 5)), draw((4, 5), 1)
    advantages, _ = tokens.gae(rewards, torch.zeros_like(rewards), MASK, gamma=0.9, lam=1.0)
    torch.testing.assert_close(tokens.returns_to_go(rewards, MASK, gamma=0.9), advantages)
    _, returns = tokens.gae(rewards, values, MASK, gamma=0.9, lam=1.0)
    for lam in (0.0, 0.5, 1.0):
        advantages, _ = tokens.gae(rewards, returns, MASK, gamma=0.9, lam=lam)
        torch.testing.assert_close(advantages, torch.zeros_like(advantages))


def test_adaptive_lambdas_sum_to_alpha_times_the_length():
    lam = tokens.length_adaptive_lambda(torch.tensor([200]), alpha=0.05).double().item()
    assert sum(lam**k for k in range(1000)) == pytest.approx(0.05 * 200, rel=1e-5)


def test_single_steps_have_the_z_score_of_outcomes():
    outcomes, groups = draw(6), torch.tensor([0, 1, 0, 1, 0, 0])
    lengths = torch.tensor([3, 1, 4, 2, 4, 1])[:, None]
    counted = torch.tensor([True, True, True, True, False, True])
    ends = torch.arange(5) == lengths - 1
    grid = torch.where(ends, outcomes[:, None], 50.0)
    flat = grouped.group_zscore(outcomes, groups, counted=counted, **NUMBERS)
    result = tokens.step_zscore(grid, ends, groups, counted=counted, **NUMBERS)
    torch.testing.assert_close(result, flat[:, None] * (torch.arange(5) < lengths))


def test_min_credit_is_the_limit_of_its_published_weights():
    rewards = torch.tensor([[0.9, 0.3, 0.6]])
    paid, _ = tokens.min_credit(rewards, torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(paid, torch.softmax(-rewards / 0.001, 1) * rewards)
