import math

import pytest
import torch

from stages.algorithms.losses.kto import kto_loss, kto_reference_point

LOGPROBS = torch.tensor([-3.0, -5.0, -4.0], dtype=torch.float64)
REF = torch.tensor([-5.0, -5.0, -2.0], dtype=torch.float64)
DESIRABLE = torch.tensor([True, False, False])


def point(value):
    return torch.tensor(value, dtype=torch.float64)


def kto(logprobs, ref, desirable, z0, **changes):
    numbers = {"beta": 0.5, "desirable_weight": 2.0, "undesirable_weight": 1.0}
    return kto_loss(logprobs, ref, desirable, z0, **(numbers | changes))


def test_hand_worked_numbers():
    # Rewards 0.5 (2, 0, -2) = 1, 0, -1; z0 = 1: gains 0.5, -0.5, -1.5.
    # Desirable: 2 (1 - sigmoid(0.5)); undesirable: 1 - sigmoid(0.5) and 1 - sigmoid(1.5).
    losses, rewards = kto(LOGPROBS, REF, DESIRABLE, point(1.0))
    assert rewards.tolist() == [1.0, 0.0, -1.0]
    half, more = 1 / (1 + math.exp(0.5)), 1 / (1 + math.exp(1.5))
    assert losses.tolist() == pytest.approx([2 * half, half, more])


def test_the_reference_point_is_the_mean_of_mismatched_log_ratios_and_never_negative():
    # Log-ratios 3, -1: mean 1.
    found = kto_reference_point(point([-2.0, -6.0]), point([-5.0, -5.0]))
    assert found.item() == 1.0
    assert kto_reference_point(point([-6.0, -6.0]), point([-5.0, -5.0])).item() == 0.0
    assert kto_reference_point(torch.zeros(0), torch.zeros(0)).item() == 0.0


def test_neither_the_reference_nor_the_reference_point_gets_a_gradient():
    logprobs, ref = LOGPROBS.clone().requires_grad_(), REF.clone().requires_grad_()
    mismatched = point([-1.0, -2.0]).requires_grad_()
    z0 = kto_reference_point(mismatched, point([-5.0, -5.0]))
    assert not z0.requires_grad
    kto(logprobs, ref, DESIRABLE, point(1.0).requires_grad_())[0].sum().backward()
    assert logprobs.grad is not None
    assert ref.grad is None
    assert mismatched.grad is None


def test_at_the_reference_every_loss_is_half_its_weight_and_the_gradient_a_quarter():
    logprobs = REF.clone().requires_grad_()
    losses, _ = kto(logprobs, REF, DESIRABLE, point(0.0))
    assert losses.tolist() == [1.0, 0.5, 0.5]
    losses.sum().backward()
    # sigmoid'(0) = 1/4, times beta 0.5, times the weight.
    assert logprobs.grad.tolist() == pytest.approx([-0.25, 0.125, 0.125])


def test_with_mirrored_rewards_a_desirable_row_costs_what_an_undesirable_one_does():
    loss, _ = kto(LOGPROBS, REF, ~DESIRABLE, point(0.0), desirable_weight=1.0)
    mirrored, _ = kto(REF, LOGPROBS, DESIRABLE, point(0.0), desirable_weight=1.0)
    torch.testing.assert_close(loss, mirrored)


def test_gradients_are_those_of_finite_differences():
    inputs = (LOGPROBS.clone().requires_grad_(),)
    assert torch.autograd.gradcheck(lambda p: kto(p, REF, DESIRABLE, point(0.3))[0], inputs)


def test_no_row_gives_no_loss_and_infinite_rewards_are_no_nan():
    empty = torch.zeros(0)
    assert kto(empty, empty, torch.zeros(0, dtype=torch.bool), torch.zeros(()))[0].shape == (0,)
    far = torch.tensor([1e30, -torch.inf, torch.inf], requires_grad=True)
    losses, _ = kto(far, torch.zeros(3), DESIRABLE, torch.zeros(()))
    assert losses.tolist() == [0.0, 0.0, 1.0]
    losses.sum().backward()
    assert far.grad.tolist() == [0.0, 0.0, 0.0]
