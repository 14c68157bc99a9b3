"""What numbers by hand (test_by_hand.py) and formulas (loops/test_advantages.py) do not show.

Gradients, masks, sums of several components, and whitening of equal values.
"""

import pytest
import torch

from stages.algorithms import aggregation
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


@pytest.mark.parametrize(("function", "numbers"), [
    (grouped.group_zscore, NUMBERS), (grouped.batch_std, NUMBERS), (grouped.group_centred, {}),
    (grouped.mean_normalised, {"eps": 1e-4}), (grouped.leave_one_out, {}),
    (lambda rewards, _, **options: grouped.greedy_baseline(rewards, **options),
     {"greedy_rewards": draw(6).requires_grad_()}),
])  # fmt: skip
def test_advantages_of_groups_have_no_gradient(function, numbers):
    rewards = draw(6, 1).abs().requires_grad_()
    result = function(rewards, torch.arange(6) % 2, counted=every(rewards), **numbers)
    assert result.any()
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


# --- Whitening

DRAWN = draw((4, 5))


@pytest.mark.parametrize("value", [5.0, 0.1, -1e8, 1 / 3])
@pytest.mark.parametrize("width", [1, 3, 700])
def test_equal_values_whiten_to_exactly_0(value, width):
    values = torch.full((3, width), value)
    every = torch.ones_like(values, dtype=torch.bool)
    assert (aggregation.masked_whiten(values, every, eps=1e-8) == 0).all()


def test_whitened_values_have_a_gradient_and_masked_ones_none():
    values = torch.where(MASK, 7 + 3 * DRAWN, torch.nan).requires_grad_()
    (aggregation.masked_whiten(values, MASK, eps=0.0) * DRAWN).sum().backward()
    assert not values.grad[~MASK].any()
    assert values.grad[MASK].isfinite().all()
    finite = torch.where(MASK, DRAWN, 3.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: aggregation.masked_whiten(v, MASK, eps=1e-2),
        (finite,))  # fmt: skip
