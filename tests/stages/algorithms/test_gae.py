import pytest
import torch

from stages.algorithms.gae import gae

REWARDS = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 9.0]], dtype=torch.float64)
VALUES = torch.tensor([[0.5, 1.0, 1.5], [2.0, 1.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_hand_worked_numbers():
    # Row 0, gamma 0.9, lam 0.5 (gamma lam = 0.45):
    #   delta_2 = 2 - 1.5 = 0.5;  delta_1 = 0 + 0.9 * 1.5 - 1 = 0.35;
    #   delta_0 = 1 + 0.9 * 1 - 0.5 = 1.4
    #   A_2 = 0.5; A_1 = 0.35 + 0.45 * 0.5 = 0.575; A_0 = 1.4 + 0.45 * 0.575 = 1.65875
    # Row 1 ends after two tokens: delta_1 = 3 - 1 = 2; delta_0 = 0 + 0.9 * 1 - 2 = -1.1
    #   A_1 = 2; A_0 = -1.1 + 0.45 * 2 = -0.2
    advantages, returns = gae(REWARDS, VALUES, MASK, gamma=0.9, lam=0.5)
    assert advantages[0].tolist() == pytest.approx([1.65875, 0.575, 0.5])
    assert advantages[1].tolist() == pytest.approx([-0.2, 2.0, 0.0])
    assert returns[0].tolist() == pytest.approx([2.15875, 1.575, 2.0])
    assert returns[1].tolist() == pytest.approx([1.8, 3.0, 0.0])


def test_lambda_1_gives_the_discounted_return_minus_the_value():
    # Row 0, gamma 0.5: returns 2; 0 + 1 = 1; 1 + 0.5 = 1.5. Row 1: 3; 1.5.
    advantages, returns = gae(REWARDS, VALUES, MASK, gamma=0.5, lam=1.0)
    expected = torch.tensor([[1.5, 1.0, 2.0], [1.5, 3.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(returns, expected)
    torch.testing.assert_close(advantages, torch.where(MASK, expected - VALUES, 0.0))


def test_lambda_0_gives_the_one_step_residual():
    advantages, _ = gae(REWARDS, VALUES, MASK, gamma=0.5, lam=0.0)
    # 1 + 0.5 * 1 - 0.5; 0 + 0.5 * 1.5 - 1; 2 - 1.5. Row 1: 0 + 0.5 * 1 - 2; 3 - 1.
    assert advantages[0].tolist() == pytest.approx([1.0, -0.25, 0.5])
    assert advantages[1].tolist() == pytest.approx([-1.5, 2.0, 0.0])


def test_each_completion_may_have_its_own_lambda():
    lam = torch.tensor([0.5, 1.0], dtype=torch.float64)
    found = gae(REWARDS, VALUES, MASK, gamma=0.9, lam=lam)
    for row in range(2):
        alone = gae(
            REWARDS[row : row + 1], VALUES[row : row + 1], MASK[row : row + 1],
            gamma=0.9, lam=lam[row].item(),
        )  # fmt: skip
        for together, expected in zip(found, alone, strict=True):
            torch.testing.assert_close(together[row : row + 1], expected, rtol=0, atol=0)


def test_a_perfect_value_leaves_no_advantage():
    _, returns = gae(REWARDS, VALUES, MASK, gamma=0.9, lam=1.0)
    for lam in (0.0, 0.5, 1.0):
        advantages, _ = gae(REWARDS, returns, MASK, gamma=0.9, lam=lam)
        torch.testing.assert_close(advantages, torch.zeros_like(advantages))


def test_padding_and_row_order_change_nothing():
    expected = gae(REWARDS, VALUES, MASK, gamma=0.9, lam=0.95)
    order = torch.tensor([1, 0])
    pad = torch.full((2, 4), torch.nan, dtype=torch.float64)
    padded = gae(
        torch.cat([REWARDS, pad], 1)[order],
        torch.cat([VALUES, pad], 1)[order],
        torch.cat([MASK, torch.zeros(2, 4, dtype=torch.bool)], 1)[order],
        gamma=0.9,
        lam=0.95,
    )
    for plain, wide in zip(expected, padded, strict=True):
        torch.testing.assert_close(wide[order][:, :3], plain, rtol=0, atol=0)
        assert (wide[:, 3:] == 0).all()


def test_no_gradient_flows_through():
    values, rewards = VALUES.clone().requires_grad_(), REWARDS.clone().requires_grad_()
    for lam in (0.95, torch.full((2,), 0.95, requires_grad=True)):
        advantages, returns = gae(rewards, values, MASK, gamma=0.9, lam=lam)
        assert not advantages.requires_grad
        assert not returns.requires_grad


def test_a_row_without_tokens_is_all_zero():
    advantages, returns = gae(REWARDS, VALUES, torch.zeros_like(MASK), gamma=1.0, lam=0.95)
    assert not advantages.any()
    assert not returns.any()
