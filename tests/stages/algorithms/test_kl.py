import math

import pytest
import torch

from stages.algorithms import kl
from stages.algorithms.kl import adaptive_coef, doubling_coef

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


def sampled_gradient(loss, weights=None):
    """Mean gradient of a loss at each token, over every token: drawn from the policy, as it is."""
    weights = LOGP.exp() if weights is None else weights
    return gradient(lambda logp: (weights * loss(logp)).sum())


REVERSE = gradient(lambda logp: (logp.exp() * (logp - LOGQ)).sum())
FORWARD = gradient(lambda logp: (LOGQ.exp() * (LOGQ - logp)).sum())


def test_k1_in_the_loss_has_no_gradient_in_the_mean():
    result = sampled_gradient(lambda logp: kl.k1(logp, LOGQ))
    torch.testing.assert_close(result, torch.zeros_like(REVERSE))


def test_k1_as_a_cost_in_the_reward_has_the_gradient_of_the_divergence():
    # REINFORCE: cost x log p, the cost a number.
    result = sampled_gradient(lambda logp: kl.k1(logp, LOGQ).detach() * logp)
    torch.testing.assert_close(result, REVERSE)


def test_k2_in_the_loss_has_the_gradient_of_the_divergence():
    torch.testing.assert_close(sampled_gradient(lambda logp: kl.k2(logp, LOGQ)), REVERSE)


def test_k3_in_the_loss_has_the_gradient_of_the_divergence_from_reference_to_policy():
    result = sampled_gradient(lambda logp: kl.k3(logp, LOGQ))
    torch.testing.assert_close(result, FORWARD)
    assert not torch.allclose(result, REVERSE)


BEHAVIOUR = torch.tensor([[0.1, 0.9, -0.4, 0.0, 1.1]], dtype=torch.float64).log_softmax(-1)


@pytest.mark.parametrize("estimator", [kl.k1, kl.k3])
@pytest.mark.parametrize("old", [LOGP, BEHAVIOUR], ids=["on_policy", "off_policy"])
def test_corrected_k1_and_k3_have_the_value_and_the_gradient_of_the_divergence(estimator, old):
    def corrected(logp):
        return kl.importance_corrected(estimator(logp, LOGQ), logp, old)

    exact = (LOGP.exp() * (LOGP - LOGQ)).sum()
    torch.testing.assert_close((old.exp() * corrected(LOGP)).sum(), exact)
    torch.testing.assert_close(sampled_gradient(corrected, old.exp()), REVERSE)


def test_corrected_k2_has_another_gradient():
    actual = sampled_gradient(
        lambda logp: kl.importance_corrected(kl.k2(logp, LOGQ), logp, LOGP), LOGP.exp()
    )
    expected = gradient(lambda logp: (logp.exp() * 0.5 * (logp - LOGQ) ** 2).sum())
    torch.testing.assert_close(actual, expected)
    assert not torch.allclose(actual, REVERSE)


def test_the_correction_by_hand():
    # Ratio 2, estimate 3: 6. Gradient in log p: 2 x 3 through the ratio.
    logprobs = torch.tensor([[math.log(0.5)]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[math.log(0.25)]], dtype=torch.float64, requires_grad=True)
    result = kl.importance_corrected(torch.full_like(logprobs, 3.0), logprobs, old)
    result.sum().backward()
    assert result.item() == pytest.approx(6.0)
    assert logprobs.grad.item() == pytest.approx(6.0)
    assert old.grad is None


@pytest.mark.parametrize("old", [-500.0, -math.inf])
def test_the_correction_does_not_overflow(old):
    logprobs = torch.tensor([[-1.0]], requires_grad=True)
    estimate = kl.k3(logprobs, torch.tensor([[-1.5]]))
    result = kl.importance_corrected(estimate, logprobs, torch.tensor([[old]]))
    result.sum().backward()
    assert result.isfinite().all()
    assert logprobs.grad.isfinite().all()


@pytest.mark.parametrize("estimator", [kl.k1, kl.k2, kl.k3])
def test_the_reference_gets_no_gradient(estimator):
    reference = LOGQ.clone().requires_grad_()
    estimator(LOGP.clone().requires_grad_(), reference).sum().backward()
    assert reference.grad is None


def test_a_token_that_the_policy_gave_up_does_not_overflow():
    logp = torch.tensor([[-500.0]], requires_grad=True)
    value = kl.k3(logp, torch.tensor([[0.0]]))
    value.sum().backward()
    # Capped at a log ratio of -20: exp(20) - 21.
    assert value.item() == pytest.approx(math.exp(20) - 21)
    assert logp.grad.item() == 0.0


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        # Target 6, 100 of 1000 samples. Error (6.6 - 6) / 6 = 0.1: 0.5 x (1 + 0.1 / 10).
        (6.6, 0.505),
        (5.4, 0.495),
        (6.0, 0.5),
        # Beyond 20 percent the error is cut: 0.5 x (1 +- 0.2 / 10).
        (60.0, 0.51),
        (math.inf, 0.51),
        (0.0, 0.49),
        (-3.0, 0.49),
    ],
)
def test_adaptive_by_hand(measured, expected):
    actual = adaptive_coef(0.5, measured, target=6.0, num_samples=100, horizon=1000)
    assert actual == pytest.approx(expected)


def test_no_samples_change_nothing():
    assert adaptive_coef(0.5, 60.0, target=6.0, num_samples=0, horizon=1000) == 0.5


def test_it_settles_where_a_divergence_that_falls_with_the_coefficient_meets_the_target():
    coef = 1.0
    for _ in range(2000):
        coef = adaptive_coef(coef, 3 / coef, target=6.0, num_samples=256, horizon=10_000)
    assert coef == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        # Target 0.03: below 0.02 half, above 0.045 double.
        (0.019, 0.25),
        (0.021, 0.5),
        (0.044, 0.5),
        (0.046, 1.0),
        (math.inf, 1.0),
        (0.0, 0.25),
    ],
)
def test_doubling_by_hand(measured, expected):
    assert doubling_coef(0.5, measured, target=0.03) == expected


def test_a_measurement_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="found NaN"):
        doubling_coef(0.5, math.nan, target=0.03)
    with pytest.raises(ValueError, match="found NaN"):
        adaptive_coef(0.5, math.nan, target=6.0, num_samples=1, horizon=1000)


def test_a_step_that_could_turn_the_coefficient_negative_is_refused():
    # 0.2 x 5000 samples is the whole horizon: an error of -0.2 would leave nothing.
    with pytest.raises(ValueError, match="raise the horizon"):
        adaptive_coef(0.5, 1.0, target=6.0, num_samples=5000, horizon=1000)
