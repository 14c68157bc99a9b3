import math

import pytest
import torch

from stages.algorithms.losses.clipped_surrogate import clipped_surrogate

LIMITS = {"clip_low": 0.2, "clip_high": 0.3}


def at_ratio(ratio, advantage):
    """Loss, whether the clip was active and the gradient in the log-prob, at one token."""
    logprobs = torch.tensor([[math.log(ratio) - 1.0]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1.0]], dtype=torch.float64)
    advantages = torch.tensor([[advantage]], dtype=torch.float64)
    losses, active = clipped_surrogate(logprobs, old, advantages, **LIMITS)
    losses.sum().backward()
    return losses.item(), active.item(), logprobs.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "active", "gradient"),
    [
        # Inside: -ratio A, and its derivative in the log-prob is the same number.
        (1.1, 2.0, -2.2, False, -2.2),
        (0.9, -2.0, 1.8, False, 1.8),
        # Beyond the side that the advantage pushes to: -1.3 A and -0.8 A, no gradient.
        (1.5, 2.0, -2.6, True, 0.0),
        (0.5, -2.0, 1.6, True, 0.0),
        # Beyond the other side the pessimistic minimum is the unclipped one.
        (0.5, 2.0, -1.0, False, -1.0),
        (1.5, -2.0, 3.0, False, 3.0),
        # No advantage, no loss and no clip.
        (1.5, 0.0, 0.0, False, 0.0),
    ],
)
def test_hand_worked_numbers(ratio, advantage, loss, active, gradient):
    found_loss, found_active, found_gradient = at_ratio(ratio, advantage)
    assert found_loss == pytest.approx(loss)
    assert found_active == active
    assert found_gradient == pytest.approx(gradient, abs=1e-12)


def test_at_ratio_1_the_gradient_is_the_policy_gradient():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    advantages = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    logprobs = logits.log_softmax(-1)[..., 0]
    losses, active = clipped_surrogate(logprobs, logprobs, advantages, **LIMITS)
    (found,) = torch.autograd.grad(losses.sum(), logits, retain_graph=True)
    (expected,) = torch.autograd.grad(-(advantages * logprobs).sum(), logits)
    torch.testing.assert_close(found, expected)
    assert not active.any()


def test_gradients_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(1)
    logprobs, old, advantages = torch.randn(3, 2, 6, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda p: clipped_surrogate(p, old, advantages, **LIMITS)[0], logprobs.requires_grad_()
    )


def test_old_log_probs_and_advantages_get_no_gradient():
    inputs = [torch.randn(2, 3).requires_grad_() for _ in range(3)]
    clipped_surrogate(*inputs, **LIMITS)[0].sum().backward()
    assert inputs[0].grad is not None
    assert inputs[1].grad is None
    assert inputs[2].grad is None
