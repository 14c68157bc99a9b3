import pytest
import torch

from stages.algorithms.group_advantages import group_zscore
from stages.algorithms.token_advantages import (
    gae,
    length_adaptive_lambda,
    min_credit,
    returns_to_go,
    step_zscore,
)

REWARDS = torch.tensor([[1.0, 0.0, 2.0], [4.0, 3.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_returns_to_go_hand_worked_numbers():
    # Row 0, gamma 0.5: 2; 0 + 1; 1 + 0.5. Row 1: 3; 4 + 1.5.
    assert returns_to_go(REWARDS, MASK, gamma=0.5).tolist() == [[1.5, 1.0, 2.0], [5.5, 3.0, 0.0]]


def test_an_uncounted_token_between_others_is_no_step():
    mask = torch.tensor([[True, False, True], [False, True, True]])
    rewards = torch.where(mask, REWARDS, torch.nan)
    # Row 0: 2; 1 + 0.5 * 2, one step later. Row 1: 9; 3 + 0.5 * 9.
    assert returns_to_go(rewards, mask, gamma=0.5).tolist() == [[2.0, 0.0, 2.0], [0.0, 7.5, 9.0]]


def test_it_is_the_advantage_of_a_value_that_is_always_zero():
    advantages, _ = gae(REWARDS, torch.zeros_like(REWARDS), MASK, gamma=0.9, lam=1.0)
    torch.testing.assert_close(returns_to_go(REWARDS, MASK, gamma=0.9), advantages)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_nothing_counted_gives_zero(gamma):
    rewards = torch.full_like(REWARDS, torch.nan)
    assert not returns_to_go(rewards, torch.zeros_like(MASK), gamma=gamma).any()


def test_no_gradient_flows_through():
    rewards = REWARDS.clone().requires_grad_()
    assert not returns_to_go(rewards, MASK, gamma=1.0).requires_grad


GAE_REWARDS = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 9.0]], dtype=torch.float64)
VALUES = torch.tensor([[0.5, 1.0, 1.5], [2.0, 1.0, 9.0]], dtype=torch.float64)


def test_gae_hand_worked_numbers():
    # Row 0, gamma 0.9, lam 0.5 (gamma lam = 0.45):
    #   delta_2 = 2 - 1.5 = 0.5;  delta_1 = 0 + 0.9 * 1.5 - 1 = 0.35;
    #   delta_0 = 1 + 0.9 * 1 - 0.5 = 1.4
    #   A_2 = 0.5; A_1 = 0.35 + 0.45 * 0.5 = 0.575; A_0 = 1.4 + 0.45 * 0.575 = 1.65875
    # Row 1 ends after two tokens: delta_1 = 3 - 1 = 2; delta_0 = 0 + 0.9 * 1 - 2 = -1.1
    #   A_1 = 2; A_0 = -1.1 + 0.45 * 2 = -0.2
    advantages, returns = gae(GAE_REWARDS, VALUES, MASK, gamma=0.9, lam=0.5)
    assert advantages[0].tolist() == pytest.approx([1.65875, 0.575, 0.5])
    assert advantages[1].tolist() == pytest.approx([-0.2, 2.0, 0.0])
    assert returns[0].tolist() == pytest.approx([2.15875, 1.575, 2.0])
    assert returns[1].tolist() == pytest.approx([1.8, 3.0, 0.0])


def test_lambda_1_gives_the_discounted_return_minus_the_value():
    # Row 0, gamma 0.5: returns 2; 0 + 1 = 1; 1 + 0.5 = 1.5. Row 1: 3; 1.5.
    advantages, returns = gae(GAE_REWARDS, VALUES, MASK, gamma=0.5, lam=1.0)
    expected = torch.tensor([[1.5, 1.0, 2.0], [1.5, 3.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(returns, expected)
    torch.testing.assert_close(advantages, torch.where(MASK, expected - VALUES, 0.0))


def test_lambda_0_gives_the_one_step_residual():
    advantages, _ = gae(GAE_REWARDS, VALUES, MASK, gamma=0.5, lam=0.0)
    # 1 + 0.5 * 1 - 0.5; 0 + 0.5 * 1.5 - 1; 2 - 1.5. Row 1: 0 + 0.5 * 1 - 2; 3 - 1.
    assert advantages[0].tolist() == pytest.approx([1.0, -0.25, 0.5])
    assert advantages[1].tolist() == pytest.approx([-1.5, 2.0, 0.0])


def test_each_completion_may_have_its_own_lambda():
    lam = torch.tensor([0.5, 1.0], dtype=torch.float64)
    actual = gae(GAE_REWARDS, VALUES, MASK, gamma=0.9, lam=lam)
    for row in range(2):
        alone = gae(
            GAE_REWARDS[row : row + 1], VALUES[row : row + 1], MASK[row : row + 1],
            gamma=0.9, lam=lam[row].item(),
        )  # fmt: skip
        for together, expected in zip(actual, alone, strict=True):
            torch.testing.assert_close(together[row : row + 1], expected, rtol=0, atol=0)


def test_a_perfect_value_leaves_no_advantage():
    _, returns = gae(GAE_REWARDS, VALUES, MASK, gamma=0.9, lam=1.0)
    for lam in (0.0, 0.5, 1.0):
        advantages, _ = gae(GAE_REWARDS, returns, MASK, gamma=0.9, lam=lam)
        torch.testing.assert_close(advantages, torch.zeros_like(advantages))


def test_padding_and_row_order_change_nothing():
    expected = gae(GAE_REWARDS, VALUES, MASK, gamma=0.9, lam=0.95)
    order = torch.tensor([1, 0])
    pad = torch.full((2, 4), torch.nan, dtype=torch.float64)
    padded = gae(
        torch.cat([GAE_REWARDS, pad], 1)[order],
        torch.cat([VALUES, pad], 1)[order],
        torch.cat([MASK, torch.zeros(2, 4, dtype=torch.bool)], 1)[order],
        gamma=0.9,
        lam=0.95,
    )
    for plain, wide in zip(expected, padded, strict=True):
        torch.testing.assert_close(wide[order][:, :3], plain, rtol=0, atol=0)
        assert (wide[:, 3:] == 0).all()


def test_gae_no_gradient_flows_through():
    values, rewards = VALUES.clone().requires_grad_(), GAE_REWARDS.clone().requires_grad_()
    for lam in (0.95, torch.full((2,), 0.95, requires_grad=True)):
        advantages, returns = gae(rewards, values, MASK, gamma=0.9, lam=lam)
        assert not advantages.requires_grad
        assert not returns.requires_grad


def test_a_row_without_tokens_is_all_zero():
    advantages, returns = gae(GAE_REWARDS, VALUES, torch.zeros_like(MASK), gamma=1.0, lam=0.95)
    assert not advantages.any()
    assert not returns.any()


def test_length_adaptive_lambda_hand_worked_numbers():
    # alpha 0.05: 1 - 1 / (0.05 * 100) = 0.8; 1 - 1 / (0.05 * 1000) = 0.98; at 20 exactly 0.
    result = length_adaptive_lambda(torch.tensor([100, 1000, 20]), alpha=0.05)
    assert result.tolist() == pytest.approx([0.8, 0.98, 0.0])


def test_its_weights_sum_to_alpha_times_the_length():
    lam = length_adaptive_lambda(torch.tensor([200]), alpha=0.05).double().item()
    assert sum(lam**k for k in range(1000)) == pytest.approx(0.05 * 200, rel=1e-5)


def test_short_and_empty_completions_get_zero():
    assert length_adaptive_lambda(torch.tensor([0, 1, 19]), alpha=0.05).tolist() == [0.0, 0.0, 0.0]


def advantages(rewards, ends, groups=None, counted=None, ddof=0, eps=1e-6):
    rewards, ends = torch.tensor(rewards), torch.tensor(ends).bool()
    groups = torch.zeros(len(rewards), dtype=torch.long) if groups is None else torch.tensor(groups)
    counted = [True] * len(rewards) if counted is None else counted
    return step_zscore(rewards, ends, groups, counted=torch.tensor(counted), ddof=ddof, eps=eps)


def test_the_sum_of_the_normalised_rewards_of_the_steps_that_are_still_to_end():
    # R = 1, 0, 2, 1: mean 1, standard deviation sqrt(1/2); z = 0, -sqrt 2, sqrt 2, 0.
    # First completion: steps end at tokens 1 and 3. Second: at tokens 0 and 1.
    actual = advantages(
        [[0.0, 1.0, 0.0, 0.0], [2.0, 1.0, 0.0, 0.0]], [[0, 1, 0, 1], [1, 1, 0, 0]], eps=1e-9
    )
    root = 2**0.5
    expected = torch.tensor([[-root, -root, -root, -root], [root, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)


def test_a_reward_of_zero_is_a_step_and_a_number_outside_the_steps_is_none():
    with_junk = advantages([[9.0, 1.0, 9.0], [0.0, 9.0, 0.0]], [[0, 1, 0], [1, 0, 0]])
    without = advantages([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0, 1, 0], [1, 0, 0]])
    assert torch.equal(with_junk, without)
    assert without[0].tolist() == pytest.approx([1.0, 1.0, 0.0], abs=1e-5)
    assert without[1].tolist() == pytest.approx([-1.0, 0.0, 0.0], abs=1e-5)


@pytest.mark.parametrize("ddof", [0, 1])
def test_with_one_step_each_it_is_the_outcome_form(ddof):
    generator = torch.Generator().manual_seed(0)
    outcomes = torch.rand(6, generator=generator)
    groups = torch.tensor([0, 1, 0, 1, 0, 0])
    lengths = torch.tensor([3, 1, 4, 2, 4, 1])
    mask = torch.arange(5) < lengths[:, None]
    ends = torch.arange(5) == (lengths - 1)[:, None]
    counted = torch.tensor([True, True, True, True, False, True])
    grid = torch.where(ends, outcomes[:, None], 0.0)
    result = step_zscore(grid, ends, groups, counted=counted, ddof=ddof, eps=1e-4)
    flat = group_zscore(outcomes, groups, counted=counted, ddof=ddof, eps=1e-4)
    torch.testing.assert_close(result, flat[:, None] * mask)


def test_a_step_cut_in_two_at_a_mean_reward_changes_no_other_tokens_credit():
    """A further step with the group's mean reward is worth 0; ddof 0 keeps the deviation's sum."""
    whole = advantages([[0.0, 2.0], [0.0, 0.0]], [[0, 1], [0, 1]], eps=1e-9)
    cut = advantages([[1.0, 2.0], [1.0, 0.0]], [[1, 1], [1, 1]], eps=1e-9)
    # Twice the steps, the same squares: the deviation falls by sqrt 2, the credit's shape stays.
    torch.testing.assert_close(cut, whole * 2**0.5)


def test_rows_in_any_order_and_padding_give_the_same():
    generator = torch.Generator().manual_seed(1)
    rewards = torch.rand(5, 6, generator=generator, dtype=torch.float64)
    ends = torch.rand(5, 6, generator=generator) < 0.5
    ends[:, 0] = True
    groups = torch.tensor([7, 3, 7, 3, 7])
    counted = torch.ones(5, dtype=torch.bool)
    result = step_zscore(rewards, ends, groups, counted=counted, ddof=1, eps=1e-4)
    order = torch.tensor([3, 1, 4, 0, 2])
    padded = torch.cat([rewards, torch.full((5, 3), 5.0, dtype=torch.float64)], 1)
    further = torch.cat([ends, torch.zeros(5, 3, dtype=torch.bool)], 1)
    other = step_zscore(
        padded[order], further[order], groups[order], counted=counted, ddof=1, eps=1e-4
    )
    torch.testing.assert_close(other[:, :6], result[order], rtol=1e-12, atol=1e-12)
    assert not other[:, 6:].any()


def test_equal_rewards_and_a_group_of_one_step_get_exactly_nothing():
    assert not advantages([[0.1, 0.1], [0.0, 0.1]], [[1, 1], [0, 1]]).any()
    assert not advantages([[0.0, 5.0]], [[0, 1]], ddof=1).any()
    assert not advantages([[0.0, 5.0]], [[0, 0]]).any()


def test_a_completion_that_does_not_count_changes_nothing_and_gets_nothing():
    two = advantages([[0.0, 1.0], [0.0, 0.0]], [[0, 1], [0, 1]])
    three = advantages(
        [[0.0, 1.0], [0.0, 0.0], [50.0, 9.0]], [[0, 1], [0, 1], [1, 1]], counted=[True, True, False]
    )
    assert torch.equal(three[:2], two)
    assert not three[2].any()


def test_summed_credit_pays_for_a_further_step_above_the_mean():
    """The known fault of the sum: two good steps earn twice what one earns."""
    result = advantages([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]], [[1, 1], [0, 1], [0, 1]])
    assert result[0, 0].item() == pytest.approx(2 * result[1, 0].item())
    assert result[1, 0] > 0


def credit(rewards, ends):
    return min_credit(torch.tensor(rewards), torch.tensor(ends).bool())


def test_only_the_smallest_step_is_paid_and_only_once():
    rewards, ends = credit(
        [[0.0, 0.9, 0.0, 0.2, 0.7], [0.5, 0.0, 0.5, 0.0, 0.0]],
        [[0, 1, 0, 1, 1], [1, 0, 1, 0, 0]],
    )
    assert ends.int().tolist() == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]  # a tie: the first
    torch.testing.assert_close(rewards[0], torch.tensor([0.0, 0.0, 0.0, 0.2, 0.0]))
    torch.testing.assert_close(rewards[1], torch.tensor([0.5, 0.0, 0.0, 0.0, 0.0]))


def test_what_is_earned_from_a_token_on_is_the_minimum_up_to_the_worst_step_by_hand():
    rewards, _ = credit([[0.9, 0.0, 0.2, 0.7]], [[1, 0, 1, 1]])
    earned = returns_to_go(rewards, torch.ones(1, 4, dtype=torch.bool), gamma=1.0)
    torch.testing.assert_close(earned, torch.tensor([[0.2, 0.2, 0.2, 0.0]]))
    # The same rewards summed: what sum credit pays.
    summed = torch.tensor([[0.9, 0.0, 0.2, 0.7]])
    earned = returns_to_go(summed, torch.ones(1, 4, dtype=torch.bool), gamma=1.0)
    torch.testing.assert_close(earned, torch.tensor([[1.8, 0.9, 0.9, 0.7]]))


def test_it_is_the_limit_of_the_published_weights():
    rewards = torch.tensor([[0.9, 0.3, 0.6]])
    ends = torch.ones(1, 3, dtype=torch.bool)
    weighted = torch.softmax(-rewards / 0.001, 1) * rewards
    torch.testing.assert_close(min_credit(rewards, ends)[0], weighted)


def test_a_good_step_more_earns_nothing_and_a_bad_one_costs():
    short, _ = credit([[0.8, 0.0, 0.0]], [[1, 0, 0]])
    longer, _ = credit([[0.8, 0.9, 0.9]], [[1, 1, 1]])
    worse, _ = credit([[0.8, 0.9, 0.1]], [[1, 1, 1]])
    assert short.sum() == longer.sum() > worse.sum()


def test_negative_rewards_zeros_and_rows_without_steps():
    rewards, ends = credit([[-1.0, 0.0], [0.0, 0.0], [0.3, 0.4]], [[1, 1], [1, 1], [0, 0]])
    assert rewards.tolist() == [[-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert ends.tolist() == [[True, False], [True, False], [False, False]]


def test_with_one_step_min_and_sum_are_the_same():
    rewards = torch.tensor([[0.0, 0.4], [0.7, 0.0]])
    ends = torch.tensor([[False, True], [True, False]])
    result, paid = min_credit(rewards, ends)
    assert torch.equal(result, rewards)
    assert torch.equal(paid, ends)


def test_order_and_padding_change_nothing():
    generator = torch.Generator().manual_seed(0)
    rewards, ends = torch.rand(4, 5, generator=generator), torch.ones(4, 5, dtype=torch.bool)
    result, paid = min_credit(rewards, ends)
    order = torch.tensor([2, 0, 3, 1])
    wider = torch.cat([rewards, torch.full((4, 2), -1.0)], 1)[order]
    further = torch.cat([ends, torch.zeros(4, 2, dtype=torch.bool)], 1)[order]
    other, other_paid = min_credit(wider, further)
    assert torch.equal(other[:, :5], result[order])
    assert torch.equal(other_paid[:, :5], paid[order])
    assert not other_paid[:, 5:].any()


def test_min_credit_with_group_normalisation_compares_the_completions_smallest_steps():
    rewards, ends = credit([[0.9, 0.2, 0.0], [0.6, 0.8, 0.7]], [[1, 1, 0], [1, 1, 1]])
    result = step_zscore(
        rewards,
        ends,
        torch.zeros(2, dtype=torch.long),
        counted=torch.ones(2, dtype=torch.bool),
        ddof=0,
        eps=1e-9,
    )
    # The minima 0.2 and 0.6 are one deviation below and above their mean.
    torch.testing.assert_close(result, torch.tensor([[-1.0, -1.0, 0.0], [1.0, 0.0, 0.0]]))
