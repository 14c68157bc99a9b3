import math

import pytest
import torch

from stages.algorithms.losses.bradley_terry import bradley_terry_loss
from stages.algorithms.losses.preference.dpo import dpo_loss

CHOSEN = torch.tensor([-4.0, -9.0, -2.0], dtype=torch.float64)
REJECTED = torch.tensor([-6.0, -7.0, -2.5], dtype=torch.float64)
CHOSEN_REF = torch.tensor([-5.0, -8.0, -2.0], dtype=torch.float64)
REJECTED_REF = torch.tensor([-5.0, -8.0, -2.5], dtype=torch.float64)


def test_hand_worked_numbers():
    # Pair 0: margin 0.5 ((-4 + 5) - (-6 + 5)) = 1, loss = ln(1 + e^-1). Pair 1: margin -1.
    losses, margins = dpo_loss(
        CHOSEN, REJECTED, CHOSEN_REF, REJECTED_REF, beta=0.5, label_smoothing=0.0
    )
    assert margins.tolist() == [1.0, -1.0, 0.0]
    assert losses.tolist() == pytest.approx(
        [math.log(1 + math.exp(-1)), math.log(1 + math.e), math.log(2)]
    )


def test_at_the_reference_the_loss_is_log_2_and_the_gradient_minus_half_beta():
    chosen, rejected = CHOSEN_REF.clone().requires_grad_(), REJECTED_REF.clone().requires_grad_()
    losses, margins = dpo_loss(
        chosen, rejected, CHOSEN_REF, REJECTED_REF, beta=0.3, label_smoothing=0.0
    )
    assert margins.tolist() == [0.0] * 3
    assert losses.tolist() == pytest.approx([math.log(2)] * 3)
    losses.sum().backward()
    # d/dm -log sigmoid(m) = -sigmoid(-m) = -1/2 at 0, times beta.
    assert chosen.grad.tolist() == pytest.approx([-0.15] * 3)
    assert rejected.grad.tolist() == pytest.approx([0.15] * 3)


def test_it_is_bradley_terry_on_the_implicit_rewards():
    losses, _ = dpo_loss(CHOSEN, REJECTED, CHOSEN_REF, REJECTED_REF, beta=0.3, label_smoothing=0.0)
    expected = bradley_terry_loss(
        0.3 * (CHOSEN - CHOSEN_REF),
        0.3 * (REJECTED - REJECTED_REF),
        torch.ones(3, dtype=torch.float64),
    )
    torch.testing.assert_close(losses, expected)


def test_the_gradient_is_beta_times_the_probability_of_the_wrong_order():
    chosen = CHOSEN.clone().requires_grad_()
    losses, _ = dpo_loss(chosen, REJECTED, CHOSEN_REF, REJECTED_REF, beta=0.5, label_smoothing=0.0)
    losses.sum().backward()
    # Margins 1, -1, 0: sigmoid(-m) = 1 / (1 + e), e / (1 + e), 1 / 2.
    wrong = [1 / (1 + math.e), math.e / (1 + math.e), 0.5]
    assert chosen.grad.tolist() == pytest.approx([-0.5 * p for p in wrong])


def test_a_smoothed_label_mixes_both_orders_and_is_met_at_its_probability():
    # Margin 1, e = 0.2: -0.8 ln sigmoid(1) - 0.2 ln sigmoid(-1) = ln(1 + e^-1) + 0.2 (1).
    losses, margins = dpo_loss(
        CHOSEN, REJECTED, CHOSEN_REF, REJECTED_REF, beta=0.5, label_smoothing=0.2
    )
    assert margins.tolist() == [1.0, -1.0, 0.0]
    assert losses[0].item() == pytest.approx(math.log(1 + math.exp(-1)) + 0.2)
    assert losses[2].item() == pytest.approx(math.log(2))
    # sigmoid(ln 4) = 0.8 = 1 - e: the gradient vanishes.
    zero = torch.zeros(1, dtype=torch.float64)
    met = torch.full((1,), math.log(4.0), dtype=torch.float64, requires_grad=True)
    dpo_loss(met, zero, zero, zero, beta=1.0, label_smoothing=0.2)[0].sum().backward()
    assert met.grad.item() == pytest.approx(0.0, abs=1e-12)
