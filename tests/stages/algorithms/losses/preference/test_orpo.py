import math

import pytest
import torch

from stages.algorithms.losses.preference.orpo import log1mexp, log_odds, orpo_loss

LN2 = math.log(2.0)


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_hand_worked_numbers():
    # Per token P(c) = 1/2 and P(r) = 1/4 over 2 and 3 tokens: odds 1 and 1/3, ratio 3.
    # loss = ln 2 + 0.5 (-ln(3 / (1 + 3))).
    losses, margins = orpo_loss(
        double(-2 * LN2), double(-6 * LN2), torch.tensor([2]), torch.tensor([3]), lam=0.5
    )
    assert margins.item() == pytest.approx(math.log(3))
    assert losses.item() == pytest.approx(LN2 - 0.5 * math.log(0.75))


def test_it_is_fine_tuning_on_the_chosen_plus_the_odds_term():
    tokens = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).double().abs().neg()
    lengths = torch.full((4,), 6)
    rejected = double(-1.0, -5.0, -9.0, -20.0)
    losses, margins = orpo_loss(tokens.sum(1), rejected, lengths, lengths, lam=0.3)
    expected = -tokens.mean() + 0.3 * torch.log1p(torch.exp(-margins)).mean()
    torch.testing.assert_close(losses.mean(), expected)
    alone, _ = orpo_loss(tokens.sum(1), rejected, lengths, lengths, lam=0.0)
    torch.testing.assert_close(alone, -tokens.mean(1))


def test_log_of_one_minus_exp_is_exact_near_zero_and_far_from_it():
    # 1 - e^-x is x near 0; log(1 - e^-50) is -e^-50.
    found = log1mexp(double(-1e-12, -LN2, -50.0))
    assert found[0].item() == pytest.approx(math.log(1e-12), rel=1e-12)
    assert found[1].item() == pytest.approx(-LN2, rel=1e-12)
    assert found[2].item() == pytest.approx(-math.exp(-50.0), rel=1e-12)


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
