"""Estimates over the whole vocabulary, exactly; whitening."""

import functools

import pytest
import torch

from stages.algorithms import aggregation, kl

LOGITS = torch.tensor([[-1.0, 0.5, 2.0, -0.3, 0.0]], dtype=torch.float64)
POLICY = LOGITS.log_softmax(-1)
REFERENCE = torch.tensor([[0.7, -0.5, 1.0, 0.2, 0.4]], dtype=torch.float64).log_softmax(-1)
BEHAVIOUR = torch.tensor([[0.1, 0.9, -0.4, 0.0, 1.1]], dtype=torch.float64).log_softmax(-1)


def gradient(function):
    """Of a function of the policy's log-probabilities, in its logits."""
    logits = LOGITS.clone().requires_grad_()
    function(logits.log_softmax(-1)).backward()
    return logits.grad


def reverse(logp):
    return (logp.exp() * (logp - REFERENCE)).sum()


def forward(logp):
    return (REFERENCE.exp() * (REFERENCE - logp)).sum()


def squares(logp):
    return (logp.exp() * 0.5 * (logp - REFERENCE) ** 2).sum()


def corrected(estimator, sampler, logp):
    return kl.importance_corrected(estimator(logp, REFERENCE), logp, sampler)


IN_THE_LOSS = {
    # estimate at each token, who draws the tokens, what its mean gradient is that of
    "k1": (lambda p: kl.k1(p, REFERENCE), POLICY, lambda p: 0.0 * p.sum()),
    "k1_in_the_reward": (lambda p: kl.k1(p, REFERENCE).detach() * p, POLICY, reverse),
    "k2": (lambda p: kl.k2(p, REFERENCE), POLICY, reverse),
    "k3": (lambda p: kl.k3(p, REFERENCE), POLICY, forward),
    "corrected_k1": (functools.partial(corrected, kl.k1, POLICY), POLICY, reverse),
    "corrected_k3": (functools.partial(corrected, kl.k3, BEHAVIOUR), BEHAVIOUR, reverse),
    "corrected_k2": (functools.partial(corrected, kl.k2, BEHAVIOUR), BEHAVIOUR, squares),
}


@pytest.mark.parametrize("name", IN_THE_LOSS)
def test_mean_gradients_of_kl_estimates_are_those_of_their_docstrings(name):
    estimate, drawn_from, of = IN_THE_LOSS[name]
    result = gradient(lambda logp: (drawn_from.exp() * estimate(logp)).sum())
    torch.testing.assert_close(result, gradient(of))


@pytest.mark.parametrize("estimator", [kl.k1, kl.k3])
def test_k1_and_k3_are_unbiased(estimator):
    torch.testing.assert_close((POLICY.exp() * estimator(POLICY, REFERENCE)).sum(), reverse(POLICY))
    result = (BEHAVIOUR.exp() * corrected(estimator, BEHAVIOUR, POLICY)).sum()
    torch.testing.assert_close(result, reverse(POLICY))


def test_an_adaptive_coefficient_settles_where_the_target_is_met():
    coef = 1.0
    for _ in range(2000):
        coef = kl.adaptive_coef(coef, 3 / coef, target=6.0, num_samples=256, horizon=10_000)
    assert coef == pytest.approx(0.5, rel=1e-6)


MASK = torch.arange(5)[None] < torch.tensor([[5], [1], [3], [2]])
DRAWN = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("value", [5.0, 0.1, -1e8, 1 / 3])
@pytest.mark.parametrize("width", [1, 3, 700])
def test_equal_values_whiten_to_exactly_0(value, width):
    values = torch.full((3, width), value)
    every = torch.ones_like(values, dtype=torch.bool)
    assert (aggregation.masked_whiten(values, every, eps=1e-8) == 0).all()


def test_whitened_values_have_mean_0_and_variance_1_and_masked_ones_no_gradient():
    values = torch.where(MASK, 7 + 3 * DRAWN, torch.nan).requires_grad_()
    whitened = aggregation.masked_whiten(values, MASK, eps=0.0)
    assert aggregation.masked_mean(whitened, MASK).item() == pytest.approx(0.0, abs=1e-12)
    assert aggregation.masked_mean(whitened**2, MASK).item() == pytest.approx(1.0)
    (whitened * DRAWN).sum().backward()
    assert not values.grad[~MASK].any()
    assert values.grad[MASK].isfinite().all()
    finite = torch.where(MASK, DRAWN, 3.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: aggregation.masked_whiten(v, MASK, eps=1e-2),
        (finite,))  # fmt: skip
