import math

import pytest
import torch

from stages.algorithms.log_ratio import masked_log_ratio, sequence_log_ratio

LOGPROBS = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -9.0, -9.0]], dtype=torch.float64)
OLD = torch.tensor([[-1.5, -2.0, -1.0], [-0.75, -1.0, -1.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, False, False]])


def test_hand_worked_numbers():
    assert masked_log_ratio(LOGPROBS, OLD, MASK).tolist() == [[0.5, 0.0, -2.0], [0.25, 0.0, 0.0]]
    # 0.5 + 0 - 2 = -1.5, over 3 tokens -0.5; 0.25 over one.
    total = sequence_log_ratio(LOGPROBS, OLD, MASK, normalise=False)
    mean = sequence_log_ratio(LOGPROBS, OLD, MASK, normalise=True)
    assert total.tolist() == [[-1.5], [0.25]]
    assert mean.tolist() == [[-0.5], [0.25]]


def test_an_uncounted_nan_reaches_neither_value_nor_gradient():
    logprobs = torch.where(MASK, LOGPROBS, torch.nan).requires_grad_()
    old = torch.where(MASK, OLD, torch.nan)
    total = sequence_log_ratio(logprobs, old, MASK, normalise=False)
    total.exp().sum().backward()
    assert total.tolist() == [[-1.5], [0.25]]
    expected = torch.tensor([[math.exp(-1.5)] * 3, [math.exp(0.25), 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(logprobs.grad, expected)


@pytest.mark.parametrize("old", [-500.0, -math.inf])
def test_above_20_it_is_capped_and_has_no_gradient(old):
    logprobs = torch.tensor([[-1.0]], requires_grad=True)
    found = masked_log_ratio(logprobs, torch.tensor([[old]]), torch.tensor([[True]]))
    found.exp().sum().backward()
    assert found.item() == 20.0
    assert logprobs.grad.item() == 0.0


def test_a_long_completions_sum_is_capped_as_well():
    logprobs, old = torch.zeros(1, 1000), torch.full((1, 1000), -1.0)
    mask = torch.ones(1, 1000, dtype=torch.bool)
    assert sequence_log_ratio(logprobs, old, mask, normalise=False).item() == 20.0
    assert sequence_log_ratio(logprobs, old, mask, normalise=True).item() == 1.0


def test_minus_infinity_stays_and_makes_a_ratio_of_zero():
    logprobs = torch.tensor([[-math.inf, -1.0]], requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    ratio = sequence_log_ratio(logprobs, torch.tensor([[-1.0, -99.0]]), mask, normalise=True).exp()
    ratio.sum().backward()
    assert ratio.item() == 0.0
    assert logprobs.grad.tolist() == [[0.0, 0.0]]


def test_no_counted_token_gives_zero():
    nothing = torch.zeros_like(MASK)
    assert sequence_log_ratio(LOGPROBS, OLD, nothing, normalise=True).tolist() == [[0.0], [0.0]]
