import math

import pytest
import torch

from stages.algorithms.losses.preference_losses import PairLogprobs, dpo_loss
from stages.algorithms.losses.reference_free_losses import (
    cpo_loss,
    log1mexp,
    log_odds,
    orpo_loss,
    simpo_loss,
)

CHOSEN = torch.tensor([-4.0, -9.0], dtype=torch.float64)
REJECTED = torch.tensor([-6.0, -3.0], dtype=torch.float64)
LENGTHS = torch.tensor([4, 3]), torch.tensor([2, 3])


def pairs(chosen, rejected, chosen_length, rejected_length):
    return PairLogprobs(chosen, rejected, chosen, rejected, chosen_length, rejected_length)


def test_simpo_hand_worked_numbers():
    # Means -1 and -3: margin 2 (2) = 4, less gamma 3 is 1. Means -3 and -1: -4 - 3 = -7.
    losses, margins = simpo_loss(pairs(CHOSEN, REJECTED, *LENGTHS), beta=2.0, gamma=3.0)
    assert margins.tolist() == [4.0, -4.0]
    assert losses.tolist() == pytest.approx([math.log(1 + math.exp(-1)), math.log(1 + math.exp(7))])


def test_for_single_tokens_and_no_gamma_it_is_cpo_without_its_likelihood_term():
    ones = torch.ones(2, dtype=torch.long)
    for actual, expected in zip(
        simpo_loss(pairs(CHOSEN, REJECTED, ones, ones), beta=0.3, gamma=0.0),
        cpo_loss(pairs(CHOSEN, REJECTED, ones, ones), beta=0.3, alpha=0.0),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected)


def test_a_longer_completion_of_the_same_tokens_is_worth_the_same():
    once, _ = simpo_loss(pairs(CHOSEN, REJECTED, *LENGTHS), beta=2.0, gamma=1.0)
    longer, _ = simpo_loss(
        pairs(3 * CHOSEN, REJECTED, 3 * LENGTHS[0], LENGTHS[1]), beta=2.0, gamma=1.0
    )
    torch.testing.assert_close(once, longer)


LN2 = math.log(2.0)


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_orpo_hand_worked_numbers():
    # Per token P(c) = 1/2 and P(r) = 1/4 over 2 and 3 tokens: odds 1 and 1/3, ratio 3.
    # loss = ln 2 + 0.5 (-ln(3 / (1 + 3))).
    losses, margins = orpo_loss(
        pairs(double(-2 * LN2), double(-6 * LN2), torch.tensor([2]), torch.tensor([3])), lam=0.5
    )
    assert margins.item() == pytest.approx(math.log(3))
    assert losses.item() == pytest.approx(LN2 - 0.5 * math.log(0.75))


def test_it_is_fine_tuning_on_the_chosen_plus_the_odds_term():
    tokens = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).double().abs().neg()
    lengths = torch.full((4,), 6)
    rejected = double(-1.0, -5.0, -9.0, -20.0)
    losses, margins = orpo_loss(pairs(tokens.sum(1), rejected, lengths, lengths), lam=0.3)
    expected = -tokens.mean() + 0.3 * torch.log1p(torch.exp(-margins)).mean()
    torch.testing.assert_close(losses.mean(), expected)
    alone, _ = orpo_loss(pairs(tokens.sum(1), rejected, lengths, lengths), lam=0.0)
    torch.testing.assert_close(alone, -tokens.mean(1))


def test_log_of_one_minus_exp_is_exact_near_zero_and_far_from_it():
    # 1 - e^-x is x near 0; log(1 - e^-50) is -e^-50.
    result = log1mexp(double(-1e-12, -LN2, -50.0))
    assert result[0].item() == pytest.approx(math.log(1e-12), rel=1e-12)
    assert result[1].item() == pytest.approx(-LN2, rel=1e-12)
    assert result[2].item() == pytest.approx(-math.exp(-50.0), rel=1e-12)


def test_its_gradient_is_a_number_even_where_exp_rounds_to_one():
    x = double(-1e-30, -1.0, -1e4, -torch.inf).requires_grad_()
    log1mexp(x).sum().backward()
    # d/dx log(1 - e^x) = -1 / (e^-x - 1): about 1 / x near 0.
    assert x.grad.tolist() == pytest.approx([-1e30, -1 / (math.e - 1), 0.0, 0.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_certain_completion_and_an_impossible_one_have_finite_gradients(dtype):
    logprobs = torch.tensor(
        [0.0, -1e-30, -1e-3, -LN2, -1e4, -torch.inf], dtype=dtype, requires_grad=True
    )
    odds = log_odds(logprobs)
    assert not odds.isnan().any()
    assert odds[:-1].isfinite().all()
    odds.sum().backward()
    assert logprobs.grad.isfinite().all()
    # d log(p / (1 - p)) / d log p = 1 / (1 - p): 2 at one half.
    assert logprobs.grad[3].item() == pytest.approx(2.0, rel=1e-5)


def test_gradients_of_log_odds_are_those_of_finite_differences():
    inputs = double(-0.01, -0.5, -0.8, -7.0).requires_grad_()
    assert torch.autograd.gradcheck(log_odds, (inputs,))


CPO_REJECTED = torch.tensor([-6.0, -7.0], dtype=torch.float64)
CPO_PAIRS = pairs(CHOSEN, CPO_REJECTED, torch.tensor([2, 3]), torch.tensor([2, 3]))


def test_cpo_hand_worked_numbers():
    # Margins 0.5 (2) = 1 and -1; likelihood terms 4 / 2 = 2 and 9 / 3 = 3, at weight 0.1.
    losses, margins = cpo_loss(CPO_PAIRS, beta=0.5, alpha=0.1)
    assert margins.tolist() == [1.0, -1.0]
    assert losses.tolist() == pytest.approx(
        [math.log(1 + math.exp(-1)) + 0.2, math.log(1 + math.e) + 0.3]
    )


def test_without_the_likelihood_term_it_is_dpo_with_a_uniform_reference():
    uniform = torch.full((2,), -3.0, dtype=torch.float64)
    against = CPO_PAIRS._replace(chosen_ref_logprobs=uniform, rejected_ref_logprobs=uniform)
    expected, _ = dpo_loss(against, beta=0.3, label_smoothing=0.0)
    actual, _ = cpo_loss(CPO_PAIRS, beta=0.3, alpha=0.0)
    torch.testing.assert_close(actual, expected)
