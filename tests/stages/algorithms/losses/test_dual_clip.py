import math

import pytest
import torch

from stages.algorithms.losses.clipped_surrogate import clipped_surrogate
from stages.algorithms.losses.dual_clip import dual_clip_surrogate

LIMITS = {"clip_low": 0.2, "clip_high": 0.3}
ONE = torch.tensor([[True]])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "active", "gradient"),
    [
        # A < 0: beyond ratio 3 the loss stays at -3 A.
        (5.0, -2.0, 6.0, True, 0.0),
        (2.5, -2.0, 5.0, False, 5.0),
        (0.5, -2.0, 1.6, True, 0.0),
        # A > 0: PPO's clip only, whatever the ratio.
        (5.0, 2.0, -2.6, True, 0.0),
        (1.1, 2.0, -2.2, False, -2.2),
    ],
)
def test_hand_worked_numbers(ratio, advantage, loss, active, gradient):
    logprobs = torch.tensor([[math.log(ratio) - 1.0]], dtype=torch.float64, requires_grad=True)
    old, advantages = torch.full_like(logprobs, -1.0), torch.full_like(logprobs, advantage)
    losses, clipped = dual_clip_surrogate(logprobs, old, advantages, ONE, **LIMITS, cap=3.0)
    losses.sum().backward()
    assert losses.item() == pytest.approx(loss)
    assert clipped.item() == active
    assert logprobs.grad.item() == pytest.approx(gradient, abs=1e-12)


def test_without_a_reachable_cap_it_is_the_clipped_surrogate():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 4, 7, generator=generator, dtype=torch.float64).unbind()
    mask = torch.ones(4, 7, dtype=torch.bool)
    found = dual_clip_surrogate(*inputs, mask, **LIMITS, cap=1e9)
    torch.testing.assert_close(found, clipped_surrogate(*inputs, **LIMITS))


@pytest.mark.parametrize("cap", [1.0, 0.2, math.nan])
def test_a_cap_that_is_no_more_than_no_change_is_refused(cap):
    zero = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="expected a cap above 1"):
        dual_clip_surrogate(zero, zero, zero, ONE, **LIMITS, cap=cap)
