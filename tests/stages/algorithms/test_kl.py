import math

import pytest
import torch

from stages.algorithms import kl

POLICY = torch.tensor([[-1.0, 0.5, 2.0, -0.3, 0.0]], dtype=torch.float64)
REFERENCE = torch.tensor([[0.7, -0.5, 1.0, 0.2, 0.4]], dtype=torch.float64)
LOGP, LOGQ = POLICY.log_softmax(-1), REFERENCE.log_softmax(-1)


def expectation(values):
    """Under the policy, exactly: every token of the vocabulary with its probability."""
    return (LOGP.exp() * values).sum().item()


def test_hand_worked_numbers():
    # p = 1/2, q = 1/4: log ratio ln 2. k1 = ln 2, k2 = (ln 2)^2 / 2, k3 = 1/2 - 1 + ln 2.
    logp, logq = torch.tensor([[math.log(0.5)]]), torch.tensor([[math.log(0.25)]])
    assert kl.k1(logp, logq).item() == pytest.approx(0.6931472)
    assert kl.k2(logp, logq).item() == pytest.approx(0.2402265)
    assert kl.k3(logp, logq).item() == pytest.approx(0.1931472)


def test_k1_and_k3_are_the_divergence_in_the_mean_under_the_policy():
    exact = (LOGP.exp() * (LOGP - LOGQ)).sum().item()
    assert expectation(kl.k1(LOGP, LOGQ)) == pytest.approx(exact, abs=1e-12)
    assert expectation(kl.k3(LOGP, LOGQ)) == pytest.approx(exact, abs=1e-12)


def test_k2_is_biased_but_close_for_a_close_reference():
    near = (POLICY + 0.01 * REFERENCE).log_softmax(-1)
    exact = (LOGP.exp() * (LOGP - near)).sum().item()
    assert expectation(kl.k2(LOGP, near)) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("estimator", [kl.k1, kl.k2, kl.k3])
def test_equal_policies_diverge_by_exactly_zero(estimator):
    assert estimator(LOGP, LOGP).tolist() == [[0.0] * 5]


def test_k3_is_never_negative_and_k1_can_be():
    assert (kl.k3(LOGP, LOGQ) >= 0).all()
    assert (kl.k1(LOGP, LOGQ) < 0).any()


@pytest.mark.parametrize("estimator", [kl.k1, kl.k2, kl.k3])
def test_gradients_are_those_of_finite_differences(estimator):
    assert torch.autograd.gradcheck(lambda p: estimator(p, LOGQ), LOGP.clone().requires_grad_())


def gradient(function):
    """Of a function of the policy's logits."""
    logits = POLICY.clone().requires_grad_()
    function(logits.log_softmax(-1)).backward()
    return logits.grad


def test_on_policy_the_gradient_of_k2_is_that_of_the_divergence_from_policy_to_reference():
    weights = LOGP.exp()
    sampled = gradient(lambda logp: (weights * kl.k2(logp, LOGQ)).sum())
    exact = gradient(lambda logp: (logp.exp() * (logp - LOGQ)).sum())
    torch.testing.assert_close(sampled, exact)


def test_on_policy_the_gradient_of_k3_is_that_of_the_divergence_from_reference_to_policy():
    weights = LOGP.exp()
    sampled = gradient(lambda logp: (weights * kl.k3(logp, LOGQ)).sum())
    exact = gradient(lambda logp: (LOGQ.exp() * (LOGQ - logp)).sum())
    torch.testing.assert_close(sampled, exact)


def test_a_token_that_the_policy_gave_up_does_not_overflow():
    logp = torch.tensor([[-500.0]], requires_grad=True)
    value = kl.k3(logp, torch.tensor([[0.0]]))
    value.sum().backward()
    # Capped at a log ratio of -20: exp(20) - 21.
    assert value.item() == pytest.approx(math.exp(20) - 21)
    assert logp.grad.item() == 0.0
