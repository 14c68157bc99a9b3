import math

import pytest
import torch

from stages.algorithms.masking import masked_mean, masked_sum, masked_whiten

VALUES = torch.tensor([[1.0, 2.0, 100.0], [3.0, 100.0, 100.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False], [True, False, False]])


def test_sum_and_mean_count_only_what_the_mask_counts():
    assert masked_sum(VALUES, MASK).item() == 6.0  # 1 + 2 + 3
    assert masked_mean(VALUES, MASK).item() == 2.0  # 6 / 3


def test_an_empty_mask_gives_zero():
    nothing = torch.zeros_like(MASK)
    assert masked_sum(VALUES, nothing).item() == 0.0
    assert masked_mean(VALUES, nothing).item() == 0.0
    assert masked_whiten(VALUES, nothing, eps=1e-8).tolist() == torch.zeros(2, 3).tolist()


def test_an_uncounted_nan_has_no_effect_on_value_or_gradient():
    values = torch.where(MASK, VALUES, torch.nan).requires_grad_()
    masked_mean(values, MASK).backward()
    assert masked_mean(values, MASK).item() == 2.0
    # Each counted entry weighs 1/3.
    torch.testing.assert_close(values.grad, MASK.double() / 3)
    whitened = masked_whiten(values, MASK, eps=1e-8)
    (gradient,) = torch.autograd.grad(whitened.square().sum(), values)
    assert whitened.isfinite().all()
    assert gradient.isfinite().all()


def test_whitening_by_hand():
    # Counted 1, 2, 3: mean 2, variance (1 + 0 + 1) / 3 = 2/3.
    whitened = masked_whiten(VALUES, MASK, eps=0.0)
    side = 1 / math.sqrt(2 / 3)
    assert whitened[0].tolist() == pytest.approx([-side, 0.0, 0.0])
    assert whitened[1].tolist() == pytest.approx([side, 0.0, 0.0])


def test_whitened_values_have_mean_0_and_variance_1():
    values = torch.randn(4, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.arange(50)[None] < torch.tensor([[50], [3], [20], [1]])
    whitened = masked_whiten(7 + 3 * values, mask, eps=0.0)
    assert masked_mean(whitened, mask).item() == pytest.approx(0.0, abs=1e-12)
    assert masked_mean(whitened**2, mask).item() == pytest.approx(1.0)


def test_equal_values_whiten_to_zero_not_to_nan():
    assert masked_whiten(torch.full((1, 3), 5.0), MASK[:1], eps=1e-8).tolist() == [[0.0] * 3]


def test_gradients_are_those_of_finite_differences():
    values = VALUES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: masked_mean(v, MASK), values)
    assert torch.autograd.gradcheck(lambda v: masked_whiten(v, MASK, eps=1e-8), values)
