import math

import pytest
import torch

from stages.algorithms.losses.bradley_terry import bradley_terry_loss
from stages.algorithms.losses.dpo import dpo_loss

CHOSEN = torch.tensor([-4.0, -9.0, -2.0], dtype=torch.float64)
REJECTED = torch.tensor([-6.0, -7.0, -2.5], dtype=torch.float64)
CHOSEN_REF = torch.tensor([-5.0, -8.0, -2.0], dtype=torch.float64)
REJECTED_REF = torch.tensor([-5.0, -8.0, -2.5], dtype=torch.float64)


def test_hand_worked_numbers():
    # Pair 0: margin 0.5 ((-4 + 5) - (-6 + 5)) = 1, loss = ln(1 + e^-1). Pair 1: margin -1.
    losses, margins = dpo_loss(CHOSEN, REJECTED, CHOSEN_REF, REJECTED_REF, beta=0.5)
    assert margins.tolist() == [1.0, -1.0, 0.0]
    assert losses.tolist() == pytest.approx(
        [math.log(1 + math.exp(-1)), math.log(1 + math.e), math.log(2)]
    )


def test_at_the_reference_the_loss_is_log_2_and_the_gradient_minus_half_beta():
    chosen, rejected = CHOSEN_REF.clone().requires_grad_(), REJECTED_REF.clone().requires_grad_()
    losses, margins = dpo_loss(chosen, rejected, CHOSEN_REF, REJECTED_REF, beta=0.3)
    assert margins.tolist() == [0.0] * 3
    assert losses.tolist() == pytest.approx([math.log(2)] * 3)
    losses.sum().backward()
    # d/dm -log sigmoid(m) = -sigmoid(-m) = -1/2 at 0, times beta.
    assert chosen.grad.tolist() == pytest.approx([-0.15] * 3)
    assert rejected.grad.tolist() == pytest.approx([0.15] * 3)


def test_it_is_bradley_terry_on_the_implicit_rewards():
    losses, _ = dpo_loss(CHOSEN, REJECTED, CHOSEN_REF, REJECTED_REF, beta=0.3)
    expected = bradley_terry_loss(
        0.3 * (CHOSEN - CHOSEN_REF),
        0.3 * (REJECTED - REJECTED_REF),
        torch.ones(3, dtype=torch.float64),
    )
    torch.testing.assert_close(losses, expected)


def test_gradients_are_those_of_finite_differences():
    inputs = (CHOSEN.clone().requires_grad_(), REJECTED.clone().requires_grad_())
    assert torch.autograd.gradcheck(
        lambda c, r: dpo_loss(c, r, CHOSEN_REF, REJECTED_REF, beta=0.3), inputs
    )


def test_the_reference_gets_no_gradient():
    inputs = [t.clone().requires_grad_() for t in (CHOSEN, REJECTED, CHOSEN_REF, REJECTED_REF)]
    losses, _ = dpo_loss(*inputs, beta=0.3)
    losses.sum().backward()
    assert inputs[0].grad is not None
    assert inputs[2].grad is None
    assert inputs[3].grad is None


def test_no_pair_gives_no_loss_and_a_huge_margin_stays_finite():
    empty = torch.zeros(0)
    assert dpo_loss(empty, empty, empty, empty, beta=0.1)[0].shape == (0,)
    losses, _ = dpo_loss(-1e5 + CHOSEN, 1e5 + REJECTED, CHOSEN_REF, REJECTED_REF, beta=1.0)
    assert losses.isfinite().all()
