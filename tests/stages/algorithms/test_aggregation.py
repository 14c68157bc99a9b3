import math

import pytest
import torch

from stages.algorithms.aggregation import (
    fixed_length_mean,
    masked_mean,
    masked_sum,
    masked_whiten,
    sequence_mean,
    sequence_sum,
    token_mean,
)

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


@pytest.mark.parametrize("value", [5.0, 0.1, -1e8, 1 / 3])
@pytest.mark.parametrize("width", [1, 3, 700])
def test_equal_values_whiten_to_exactly_0_whatever_their_mean_rounds_to(value, width):
    values = torch.full((3, width), value)
    assert (masked_whiten(values, torch.ones_like(values, dtype=torch.bool), eps=1e-8) == 0).all()


def test_gradients_are_those_of_finite_differences():
    values = VALUES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: masked_mean(v, MASK), values)
    assert torch.autograd.gradcheck(lambda v: masked_whiten(v, MASK, eps=1e-8), values)


LOSSES = torch.tensor([[1.0, 2.0, 3.0], [6.0, 50.0, 50.0]], dtype=torch.float64)
AGGREGATION_MASK = torch.tensor([[True, True, True], [True, False, False]])


def test_hand_worked_numbers():
    # Tokens: (1 + 2 + 3 + 6) / 4 = 3. Sequences: ((1 + 2 + 3) / 3 + 6 / 1) / 2 = 4.
    assert token_mean(LOSSES, AGGREGATION_MASK, num_tokens=4).item() == 3.0
    assert sequence_mean(LOSSES, AGGREGATION_MASK, num_sequences=2).item() == 4.0
    # Sums: (1 + 2 + 3 + 6) / 2 = 6, and in units of 4 tokens 1.5.
    assert sequence_sum(LOSSES, AGGREGATION_MASK, num_sequences=2).item() == 6.0
    assert fixed_length_mean(LOSSES, AGGREGATION_MASK, num_sequences=2, length=4).item() == 1.5


def test_with_equal_lengths_all_are_the_mean():
    mask = torch.ones_like(AGGREGATION_MASK)
    assert token_mean(LOSSES, mask, num_tokens=6).item() == pytest.approx(LOSSES.mean().item())
    assert sequence_mean(LOSSES, mask, num_sequences=2).item() == pytest.approx(
        LOSSES.mean().item()
    )
    assert fixed_length_mean(LOSSES, mask, num_sequences=2, length=3).item() == pytest.approx(
        LOSSES.mean().item()
    )


@pytest.mark.parametrize("split", [[[0], [1], [2], [3]], [[3, 1], [0, 2]], [[2, 0, 1, 3]]])
def test_any_split_order_and_padding_gives_the_same_value_and_gradient(split):
    generator = torch.Generator().manual_seed(0)
    losses = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    mask = torch.arange(5)[None] < torch.tensor([[5], [1], [3], [2]])

    def step(parts, width):
        parameter = losses.clone().requires_grad_()
        padded = torch.nn.functional.pad(parameter, (0, width), value=torch.nan)
        counted = torch.nn.functional.pad(mask, (0, width))
        total = 0.0
        for part in parts:
            loss = token_mean(padded[part], counted[part], num_tokens=11)
            loss = loss + sequence_mean(padded[part], counted[part], num_sequences=4)
            loss = loss + fixed_length_mean(padded[part], counted[part], num_sequences=4, length=7)
            loss = loss + sequence_sum(padded[part], counted[part], num_sequences=4)
            loss.backward(retain_graph=True)
            total += loss.item()
        return total, parameter.grad

    value, gradient = step([[0, 1, 2, 3]], 0)
    split_value, split_gradient = step(split, 3)
    assert split_value == pytest.approx(value, abs=1e-12)
    torch.testing.assert_close(split_gradient, gradient, rtol=1e-12, atol=1e-15)


def test_nothing_counted_gives_zero():
    nothing = torch.zeros_like(AGGREGATION_MASK)
    assert token_mean(LOSSES, nothing, num_tokens=0).item() == 0.0
    assert sequence_mean(LOSSES, nothing, num_sequences=0).item() == 0.0
    assert sequence_sum(LOSSES, nothing, num_sequences=0).item() == 0.0
    assert fixed_length_mean(LOSSES, nothing, num_sequences=0, length=3).item() == 0.0


def test_aggregation_gradients_are_those_of_finite_differences():
    losses = LOSSES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: token_mean(x, AGGREGATION_MASK, num_tokens=4), losses)
    assert torch.autograd.gradcheck(
        lambda x: sequence_mean(x, AGGREGATION_MASK, num_sequences=2), losses
    )
    assert torch.autograd.gradcheck(
        lambda x: fixed_length_mean(x, AGGREGATION_MASK, num_sequences=2, length=3), losses
    )
