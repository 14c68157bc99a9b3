import math

import pytest
import torch
from stages.loops.divergence import KlInLoss

FIXED = 0.1
every_penalty = pytest.mark.parametrize(
    "penalty",
    [
        KlInLoss(kind="loss", estimator=name, level=level, corrected=corrected, coef=FIXED)
        for name in ("k1", "k2", "k3")
        for level in ("token", "sequence")
        for corrected in (False, True)
    ],
    ids=lambda penalty: f"{penalty.estimator}-{penalty.level}-{penalty.corrected}",
)


@every_penalty
@pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf])
def test_what_the_mask_leaves_out_reaches_neither_value_nor_gradient(penalty, filler):
    mask = torch.tensor([[True, True, False]])
    logprobs = torch.tensor([[-1.0, -2.0, filler]], requires_grad=True)
    others = [torch.tensor([[-1.5, -1.0, filler]])] * 2
    found = torch.where(mask, penalty(logprobs, *others, mask), 0.0)
    found.sum().backward()
    assert found.isfinite().all()
    assert logprobs.grad.isfinite().all()
    assert logprobs.grad[0, 2] == 0


@every_penalty
def test_a_long_completion_in_float32_is_that_in_float64(penalty):
    generator = torch.Generator().manual_seed(0)
    logprobs = -torch.rand(1, 2000, generator=generator, dtype=torch.float64)
    others = [
        logprobs + 1e-3 * torch.randn(1, 2000, generator=generator, dtype=torch.float64)
        for _ in range(2)
    ]
    mask = torch.ones(1, 2000, dtype=torch.bool)
    narrow = [values.float() for values in (logprobs, *others)]
    expected = penalty(*(values.double() for values in narrow), mask)
    torch.testing.assert_close(penalty(*narrow, mask).double(), expected, rtol=1e-5, atol=1e-7)
