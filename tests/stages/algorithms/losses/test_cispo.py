import math

import pytest
import torch

from stages.algorithms.losses.cispo import cispo


@pytest.mark.parametrize(
    ("ratio", "advantage", "cap", "weight"),
    [
        (1.5, 2.0, 2.0, 1.5),
        # Above the cap the token still counts, at the capped weight, whatever the sign.
        (5.0, 2.0, 2.0, 2.0),
        (5.0, -2.0, 2.0, 2.0),
        # No lower limit.
        (0.01, -2.0, 2.0, 0.01),
        # The cap is the weight itself: 0.2 makes a fifth of an unmoved token.
        (1.0, 2.0, 0.2, 0.2),
    ],
)
def test_hand_worked_numbers(ratio, advantage, cap, weight):
    # Loss -weight A logprob, gradient -weight A: the weight has none.
    logprobs = torch.tensor([[math.log(ratio) - 1.0]], dtype=torch.float64, requires_grad=True)
    losses, clipped = cispo(
        logprobs, torch.full_like(logprobs, -1.0), torch.full_like(logprobs, advantage),
        torch.tensor([[True]]), cap=cap,
    )  # fmt: skip
    losses.sum().backward()
    assert losses.item() == pytest.approx(-weight * advantage * (math.log(ratio) - 1.0))
    assert logprobs.grad.item() == pytest.approx(-weight * advantage)
    assert clipped.item() == (ratio > cap)


def test_a_cap_of_nothing_is_refused():
    zero = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="expected a cap above 0"):
        cispo(zero, zero, zero, torch.tensor([[True]]), cap=0.0)
