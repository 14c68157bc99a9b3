import pytest
import torch

from stages.algorithms.aggregation import (
    fixed_length_mean,
    sequence_mean,
    sequence_sum,
    token_mean,
)

LOSSES = torch.tensor([[1.0, 2.0, 3.0], [6.0, 50.0, 50.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, False, False]])


def test_hand_worked_numbers():
    # Tokens: (1 + 2 + 3 + 6) / 4 = 3. Sequences: ((1 + 2 + 3) / 3 + 6 / 1) / 2 = 4.
    assert token_mean(LOSSES, MASK, num_tokens=4).item() == 3.0
    assert sequence_mean(LOSSES, MASK, num_sequences=2).item() == 4.0
    # Sums: (1 + 2 + 3 + 6) / 2 = 6, and in units of 4 tokens 1.5.
    assert sequence_sum(LOSSES, MASK, num_sequences=2).item() == 6.0
    assert fixed_length_mean(LOSSES, MASK, num_sequences=2, length=4).item() == 1.5


def test_with_equal_lengths_all_are_the_mean():
    mask = torch.ones_like(MASK)
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
    nothing = torch.zeros_like(MASK)
    assert token_mean(LOSSES, nothing, num_tokens=0).item() == 0.0
    assert sequence_mean(LOSSES, nothing, num_sequences=0).item() == 0.0
    assert sequence_sum(LOSSES, nothing, num_sequences=0).item() == 0.0
    assert fixed_length_mean(LOSSES, nothing, num_sequences=0, length=3).item() == 0.0


def test_a_length_of_nothing_is_refused():
    with pytest.raises(ValueError, match="length of at least 1, found 0"):
        fixed_length_mean(LOSSES, MASK, num_sequences=2, length=0)


def test_gradients_are_those_of_finite_differences():
    losses = LOSSES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: token_mean(x, MASK, num_tokens=4), losses)
    assert torch.autograd.gradcheck(lambda x: sequence_mean(x, MASK, num_sequences=2), losses)
    assert torch.autograd.gradcheck(
        lambda x: fixed_length_mean(x, MASK, num_sequences=2, length=3), losses
    )
