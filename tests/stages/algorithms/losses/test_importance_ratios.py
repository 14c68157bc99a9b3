import functools
import math

import pytest
import torch

from stages.algorithms.losses.importance_ratios import (
    masked_log_ratio,
    sequence_log_ratio,
    sequence_masked,
    sequence_truncated,
    token_masked,
    token_truncated,
)

LOGPROBS = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -9.0, -9.0]], dtype=torch.float64)
OLD = torch.tensor([[-1.5, -2.0, -1.0], [-0.75, -1.0, -1.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, False, False]])


def test_log_ratio_hand_worked_numbers():
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
    result = masked_log_ratio(logprobs, torch.tensor([[old]]), torch.tensor([[True]]))
    result.exp().sum().backward()
    assert result.item() == 20.0
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


IMPORTANCE_CORRECTION_MASK = torch.tensor([[True, True, True], [True, True, False]])
SAMPLER = torch.full((2, 3), -2.0, dtype=torch.float64)
# w is 0.5, 2, 4 and 1, 0.25, 8: products 4 and, without the last, 0.25.
IMPORTANCE_CORRECTION_OLD = (
    SAMPLER + torch.tensor([[0.5, 2.0, 4.0], [1.0, 0.25, 8.0]], dtype=torch.float64).log()
)
EVERY = [
    functools.partial(token_truncated, cap=3.0),
    functools.partial(token_masked, low=0.4, high=3.0),
    functools.partial(sequence_truncated, cap=3.0),
    functools.partial(sequence_masked, low=0.2, high=3.0),
]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (EVERY[0], [[0.5, 2.0, 3.0], [1.0, 0.25, 0.0]]),
        (EVERY[1], [[0.5, 2.0, 0.0], [1.0, 0.0, 0.0]]),
        (EVERY[2], [[3.0, 3.0, 3.0], [0.25, 0.25, 0.0]]),
        (EVERY[3], [[0.0, 0.0, 0.0], [0.25, 0.25, 0.0]]),
    ],
)
def test_importance_correction_hand_worked_numbers(weights, expected):
    actual = weights(IMPORTANCE_CORRECTION_OLD, SAMPLER, IMPORTANCE_CORRECTION_MASK)
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64))


def test_the_limits_themselves_are_trusted():
    zeros = torch.zeros_like(IMPORTANCE_CORRECTION_OLD)
    for weights in (token_masked, sequence_masked):
        assert torch.equal(
            weights(zeros, zeros, IMPORTANCE_CORRECTION_MASK, low=1.0, high=1.0),
            IMPORTANCE_CORRECTION_MASK.double(),
        )


@pytest.mark.parametrize("weights", EVERY)
def test_a_sampler_that_agrees_gives_one(weights):
    assert torch.equal(
        weights(IMPORTANCE_CORRECTION_OLD, IMPORTANCE_CORRECTION_OLD, IMPORTANCE_CORRECTION_MASK),
        IMPORTANCE_CORRECTION_MASK.double(),
    )


@pytest.mark.parametrize("weights", EVERY)
def test_what_the_mask_leaves_out_has_no_effect_even_if_nan(weights):
    result = weights(
        torch.where(IMPORTANCE_CORRECTION_MASK, IMPORTANCE_CORRECTION_OLD, torch.nan),
        torch.where(IMPORTANCE_CORRECTION_MASK, SAMPLER, torch.nan),
        IMPORTANCE_CORRECTION_MASK,
    )
    assert torch.equal(
        result, weights(IMPORTANCE_CORRECTION_OLD, SAMPLER, IMPORTANCE_CORRECTION_MASK)
    )
    nothing = torch.full_like(IMPORTANCE_CORRECTION_OLD, torch.nan)
    assert not weights(nothing, nothing, torch.zeros_like(IMPORTANCE_CORRECTION_MASK)).any()


@pytest.mark.parametrize("weights", EVERY)
def test_there_is_no_gradient(weights):
    assert not weights(
        IMPORTANCE_CORRECTION_OLD.clone().requires_grad_(),
        SAMPLER.clone().requires_grad_(),
        IMPORTANCE_CORRECTION_MASK,
    ).requires_grad


@pytest.mark.parametrize("sampler", [-500.0, -math.inf])
def test_a_token_that_the_sampler_thought_impossible_is_cut_or_left_out(sampler):
    result = [
        weights(
            IMPORTANCE_CORRECTION_OLD,
            torch.full_like(IMPORTANCE_CORRECTION_OLD, sampler),
            IMPORTANCE_CORRECTION_MASK,
        )[0, 0].item()
        for weights in EVERY
    ]
    assert result == [3.0, 0.0, 3.0, 0.0]


@pytest.mark.parametrize("old", [-500.0, -math.inf])
def test_a_token_that_the_trainer_thinks_impossible_weighs_nothing(old):
    for weights in EVERY:
        assert (
            weights(
                torch.full_like(IMPORTANCE_CORRECTION_OLD, old), SAMPLER, IMPORTANCE_CORRECTION_MASK
            )
            .max()
            .item()
            < 1e-100
        )


def test_the_sequence_weight_is_unbiased():
    # Two tokens of three kinds each: all nine completions, with the sampler's probabilities.
    generator = torch.Generator().manual_seed(0)
    trainer, sampler = torch.randn(2, 2, 3, generator=generator, dtype=torch.float64).log_softmax(
        -1
    )
    values = torch.randn(9, generator=generator, dtype=torch.float64)
    tokens = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    old = torch.stack([trainer[t, tokens[:, t]] for t in range(2)], dim=1)
    drawn = torch.stack([sampler[t, tokens[:, t]] for t in range(2)], dim=1)
    weights = sequence_truncated(old, drawn, torch.ones(9, 2, dtype=torch.bool), cap=1e6)[:, 0]
    result = (drawn.sum(1).exp() * weights * values).sum()
    torch.testing.assert_close(result, (old.sum(1).exp() * values).sum())
