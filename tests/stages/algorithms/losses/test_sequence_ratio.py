import math

import pytest
import torch

from stages.algorithms.aggregation import sequence_mean
from stages.algorithms.losses.clipped_surrogate import clipped_surrogate
from stages.algorithms.losses.sequence_ratio import sequence_ratio_surrogate

LIMITS = {"clip_low": 0.2, "clip_high": 0.3}
MASK = torch.tensor([[True, True, False], [True, True, True]])


def make(*log_ratios):
    old = torch.full((2, 3), -1.0, dtype=torch.float64)
    return (old + torch.tensor(log_ratios, dtype=torch.float64)).requires_grad_(), old


def test_hand_worked_numbers():
    # Row 0: ratios 1.21 and 1 have the geometric mean 1.1, inside; A = 2: loss -2.2.
    # Row 1: three ratios of 1.5 have 1.5, clipped at 1.3 as A = 1 is positive: loss -1.3.
    logprobs, old = make([math.log(1.21), 0.0, 9.0], [math.log(1.5)] * 3)
    advantages = torch.tensor([[2.0] * 3, [1.0] * 3], dtype=torch.float64)
    losses, clipped = sequence_ratio_surrogate(
        logprobs, old, advantages, MASK, **LIMITS, normalise=True
    )
    torch.testing.assert_close(
        losses, torch.tensor([[-2.2, -2.2, 0.0], [-1.3] * 3], dtype=torch.float64)
    )
    assert clipped.tolist() == [[False] * 3, [True] * 3]
    # (-2.2 - 1.3) / 2
    loss = sequence_mean(losses, MASK, num_sequences=2)
    assert loss.item() == pytest.approx(-1.75)
    # The derivative in each of row 0's two tokens: -2.2 / 2 tokens / 2 completions.
    loss.backward()
    assert logprobs.grad[0].tolist() == pytest.approx([-0.55, -0.55, 0.0])
    assert logprobs.grad[1].tolist() == [0.0, 0.0, 0.0]


def test_without_normalisation_the_ratios_multiply():
    # 1.1 x 1.1 = 1.21; 1.1^3 = 1.331 is clipped at 1.3.
    logprobs, old = make([math.log(1.1)] * 3, [math.log(1.1)] * 3)
    losses, clipped = sequence_ratio_surrogate(
        logprobs, old, torch.ones_like(old), MASK, **LIMITS, normalise=False
    )
    assert losses[:, 0].tolist() == pytest.approx([-1.21, -1.3])
    assert clipped.any(1).tolist() == [False, True]


@pytest.mark.parametrize("normalise", [True, False])
def test_with_one_token_it_is_the_clipped_surrogate(normalise):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3, 9, 1, generator=generator, dtype=torch.float64)
    mask = torch.ones(9, 1, dtype=torch.bool)
    results = []
    for surrogate, arguments in (
        (sequence_ratio_surrogate, {"normalise": normalise}),
        (clipped_surrogate, {}),
    ):
        logprobs = values[0].clone().requires_grad_()
        losses, clipped = surrogate(logprobs, values[1], values[2], mask, **LIMITS, **arguments)
        losses.sum().backward()
        results.append([losses.detach(), clipped, logprobs.grad])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_the_order_of_a_completions_tokens_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    logprobs, old = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64)
    mask, advantages = torch.ones(4, 6, dtype=torch.bool), torch.ones(4, 6, dtype=torch.float64)
    found, _ = sequence_ratio_surrogate(
        logprobs.flip(1), old.flip(1), advantages, mask, **LIMITS, normalise=True
    )
    expected, _ = sequence_ratio_surrogate(
        logprobs, old, advantages, mask, **LIMITS, normalise=True
    )
    torch.testing.assert_close(found, expected)
