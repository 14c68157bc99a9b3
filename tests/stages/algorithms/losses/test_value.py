import pytest
import torch

from stages.algorithms.losses.value import clipped_value_loss


def at(value, old, target, clip):
    """Loss and gradient at one token."""
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    losses = clipped_value_loss(
        values,
        torch.tensor([[old]], dtype=torch.float64),
        torch.tensor([[target]], dtype=torch.float64),
        clip=clip,
    )
    losses.sum().backward()
    return losses.item(), values.grad.item()


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "gradient"),
    [
        # Within 0.5 of the old value: (1.2 - 3)^2 / 2 = 1.62, gradient V - return.
        (1.2, 1.0, 3.0, 1.62, -1.8),
        # Moved 1 towards the return: clipped to 1.5, 1.5^2 / 2 = 1.125 beats 0.5: no gradient.
        (2.0, 1.0, 3.0, 1.125, 0.0),
        # Moved 1 away from it: the unclipped (0 - 3)^2 / 2 = 4.5 is the larger.
        (0.0, 1.0, 3.0, 4.5, -3.0),
    ],
)
def test_hand_worked_numbers(value, old, target, loss, gradient):
    assert at(value, old, target, 0.5) == (pytest.approx(loss), pytest.approx(gradient))


def test_with_a_wide_clip_it_is_half_the_squared_error():
    generator = torch.Generator().manual_seed(0)
    values, old, returns = torch.randn(3, 2, 5, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        clipped_value_loss(values, old, returns, clip=1e9), 0.5 * (values - returns) ** 2
    )


def test_before_any_move_the_gradient_is_the_error_whatever_the_clip():
    assert at(1.0, 1.0, 3.0, 0.1) == (pytest.approx(2.0), pytest.approx(-2.0))


def test_gradients_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(1)
    values, old, returns = torch.randn(3, 2, 5, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda v: clipped_value_loss(v, old, returns, clip=0.5), values.requires_grad_()
    )


def test_old_values_and_returns_get_no_gradient():
    inputs = [torch.randn(2, 3).requires_grad_() for _ in range(3)]
    clipped_value_loss(*inputs, clip=0.2).sum().backward()
    assert inputs[0].grad is not None
    assert inputs[1].grad is None
    assert inputs[2].grad is None
