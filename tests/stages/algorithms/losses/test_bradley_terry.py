import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from stages.algorithms.losses.bradley_terry import bradley_terry_loss


def loss(chosen, rejected, probability, margin=0.0):
    return bradley_terry_loss(
        torch.tensor([chosen], dtype=torch.float64),
        torch.tensor([rejected], dtype=torch.float64),
        torch.tensor([probability], dtype=torch.float64),
        margin=margin,
    ).item()


def test_hand_worked_numbers():
    # Margin ln 3: sigmoid = 3/4. p = 1: -ln 3/4. p = 0.8: -0.8 ln 3/4 - 0.2 ln 1/4.
    assert loss(1 + math.log(3), 1.0, 1.0) == pytest.approx(-math.log(0.75))
    assert loss(1 + math.log(3), 1.0, 0.8) == pytest.approx(
        -0.8 * math.log(0.75) - 0.2 * math.log(0.25)
    )


def test_a_margin_asks_for_rewards_that_are_farther_apart():
    # Llama 2: with p = 1 and m = 2, rewards 2 + ln 3 apart are as good as ln 3 without: -ln 3/4.
    assert loss(2 + math.log(3), 0.0, 1.0, margin=2.0) == pytest.approx(-math.log(0.75))
    # p = 0.75: m = 2 (2 p - 1) = 1; sigmoid(1 + ln 3 - 1) = 3/4.
    expected = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert loss(1 + math.log(3), 0.0, 0.75, margin=2.0) == pytest.approx(expected)


def test_a_margin_is_on_the_side_of_the_label_and_an_undecided_one_has_none():
    assert loss(0.0, 2 + math.log(3), 0.0, margin=2.0) == pytest.approx(-math.log(0.75))
    assert loss(2.0, -1.0, 0.2, margin=1.5) == pytest.approx(loss(-1.0, 2.0, 0.8, margin=1.5))
    assert loss(2.0, -1.0, 0.5, margin=1.5) == loss(2.0, -1.0, 0.5)


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_equal_rewards_cost_log_2_whatever_the_label(probability):
    assert loss(0.7, 0.7, probability) == pytest.approx(math.log(2))


def test_an_undecided_label_is_symmetric_and_a_flipped_one_swaps_the_roles():
    assert loss(2.0, -1.0, 0.5) == pytest.approx(loss(-1.0, 2.0, 0.5))
    assert loss(2.0, -1.0, 0.8) == pytest.approx(loss(-1.0, 2.0, 0.2))


def test_it_is_binary_cross_entropy_on_the_margin():
    generator = torch.Generator().manual_seed(0)
    chosen, rejected = torch.randn(2, 20, generator=generator, dtype=torch.float64)
    labels = torch.rand(20, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        bradley_terry_loss(chosen, rejected, labels),
        binary_cross_entropy_with_logits(chosen - rejected, labels, reduction="none"),
    )


def test_a_huge_margin_stays_finite():
    assert loss(1e4, -1e4, 1.0) == 0.0
    assert loss(-1e4, 1e4, 1.0) == pytest.approx(2e4)


def test_gradients_are_those_of_finite_differences_and_vanish_where_the_label_is_met():
    chosen = torch.tensor([0.3, math.log(4.0)], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([-0.2, 0.0], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([1.0, 0.8], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda c, r: bradley_terry_loss(c, r, labels), (chosen, rejected)
    )
    bradley_terry_loss(chosen, rejected, labels)[1].backward()
    # sigmoid(ln 4) = 0.8 is the label itself.
    assert chosen.grad[1].item() == pytest.approx(0.0, abs=1e-12)
