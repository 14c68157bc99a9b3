import functools
import math

import pytest
import torch

from stages.algorithms.losses.importance_correction import (
    sequence_masked,
    sequence_truncated,
    token_masked,
    token_truncated,
)

MASK = torch.tensor([[True, True, True], [True, True, False]])
SAMPLER = torch.full((2, 3), -2.0, dtype=torch.float64)
# w is 0.5, 2, 4 and 1, 0.25, 8: products 4 and, without the last, 0.25.
OLD = SAMPLER + torch.tensor([[0.5, 2.0, 4.0], [1.0, 0.25, 8.0]], dtype=torch.float64).log()
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
def test_hand_worked_numbers(weights, expected):
    found = weights(OLD, SAMPLER, MASK)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_the_limits_themselves_are_trusted():
    one = torch.zeros_like(OLD)
    for weights in (token_masked, sequence_masked):
        assert torch.equal(weights(one, one, MASK, low=1.0, high=1.0), MASK.double())


@pytest.mark.parametrize("weights", EVERY)
def test_a_sampler_that_agrees_gives_one(weights):
    assert torch.equal(weights(OLD, OLD, MASK), MASK.double())


@pytest.mark.parametrize("weights", EVERY)
def test_what_the_mask_leaves_out_has_no_effect_even_if_nan(weights):
    found = weights(torch.where(MASK, OLD, torch.nan), torch.where(MASK, SAMPLER, torch.nan), MASK)
    assert torch.equal(found, weights(OLD, SAMPLER, MASK))
    nothing = torch.full_like(OLD, torch.nan)
    assert not weights(nothing, nothing, torch.zeros_like(MASK)).any()


@pytest.mark.parametrize("weights", EVERY)
def test_there_is_no_gradient(weights):
    assert not weights(
        OLD.clone().requires_grad_(), SAMPLER.clone().requires_grad_(), MASK
    ).requires_grad


@pytest.mark.parametrize("sampler", [-500.0, -math.inf])
def test_a_token_that_the_sampler_thought_impossible_is_cut_or_left_out(sampler):
    found = [weights(OLD, torch.full_like(OLD, sampler), MASK)[0, 0].item() for weights in EVERY]
    assert found == [3.0, 0.0, 3.0, 0.0]


@pytest.mark.parametrize("old", [-500.0, -math.inf])
def test_a_token_that_the_trainer_thinks_impossible_weighs_nothing(old):
    for weights in EVERY:
        assert weights(torch.full_like(OLD, old), SAMPLER, MASK).max().item() < 1e-100


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
    found = (drawn.sum(1).exp() * weights * values).sum()
    torch.testing.assert_close(found, (old.sum(1).exp() * values).sum())


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (-1.0, 1.0), (math.nan, 1.0)])
def test_limits_with_nothing_between_them_are_refused(low, high):
    for weights in (token_masked, sequence_masked):
        with pytest.raises(ValueError, match="expected 0 <= low <= high"):
            weights(OLD, SAMPLER, MASK, low=low, high=high)


def test_a_cap_of_nothing_is_refused():
    for weights in (token_truncated, sequence_truncated):
        with pytest.raises(ValueError, match="expected a cap above 0"):
            weights(OLD, SAMPLER, MASK, cap=0.0)
