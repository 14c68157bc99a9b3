"""What holds for every loss of a policy gradient, whatever its limits."""

import functools
import math

import pytest
import torch

from stages.algorithms.losses.cispo import cispo
from stages.algorithms.losses.clipped_surrogate import clipped_surrogate
from stages.algorithms.losses.dual_clip import dual_clip_surrogate
from stages.algorithms.losses.kl_penalty_surrogate import kl_penalty_surrogate
from stages.algorithms.losses.reinforce import reinforce
from stages.algorithms.losses.sequence_ratio import sequence_ratio_surrogate

LIMITS = {"clip_low": 0.2, "clip_high": 0.3}
SURROGATES = {
    "clipped": functools.partial(clipped_surrogate, **LIMITS),
    "dual_clip": functools.partial(dual_clip_surrogate, **LIMITS, cap=3.0),
    "kl_penalty": functools.partial(kl_penalty_surrogate, beta=0.5),
    "gspo": functools.partial(sequence_ratio_surrogate, **LIMITS, normalise=True),
    "sequence": functools.partial(sequence_ratio_surrogate, **LIMITS, normalise=False),
    "cispo": functools.partial(cispo, cap=2.0),
    "reinforce": reinforce,
}
every_surrogate = pytest.mark.parametrize(
    "surrogate", [pytest.param(function, id=name) for name, function in SURROGATES.items()]
)
MASK = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])


def make():
    """Log-probabilities, old ones at ratios from 0.2 to 5, and an advantage a completion."""
    generator = torch.Generator().manual_seed(0)
    logprobs = torch.randn(2, 6, generator=generator, dtype=torch.float64) - 3
    old = logprobs + torch.randn(2, 6, generator=generator, dtype=torch.float64)
    return logprobs, old, torch.tensor([[1.5], [-0.7]], dtype=torch.float64).repeat(1, 6)


@every_surrogate
def test_at_ratio_1_the_gradient_of_the_mean_is_the_policy_gradients(surrogate):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 6, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    logprobs = logits.log_softmax(-1)[..., 0]
    _, _, advantages = make()
    lengths = MASK.sum(1, keepdim=True)
    losses, clipped = surrogate(logprobs, logprobs, advantages, MASK)
    (found,) = torch.autograd.grad((losses / lengths).sum(), logits, retain_graph=True)
    objective = torch.where(MASK, advantages * logprobs, 0.0) / lengths
    # The ratio of the summed log-probabilities moves with every token, not with their mean.
    scale = lengths[..., None] if surrogate is SURROGATES["sequence"] else 1
    (expected,) = torch.autograd.grad(-objective.sum(), logits)
    torch.testing.assert_close(found, expected * scale)
    assert not clipped.any()


@every_surrogate
def test_gradients_are_those_of_finite_differences(surrogate):
    logprobs, old, advantages = make()
    with torch.no_grad():
        weights = torch.exp(logprobs - old).clamp(max=2.0)

    def function(p):
        # The weight of CISPO is no part of its derivative: hold it for the differences too.
        if surrogate is SURROGATES["cispo"]:
            return torch.where(MASK, -weights * advantages * p, 0.0)
        return surrogate(p, old, advantages, MASK)[0]

    assert torch.autograd.gradcheck(function, logprobs.clone().requires_grad_())
    inputs = [logprobs.clone().requires_grad_() for _ in range(2)]
    found = torch.autograd.grad(surrogate(inputs[0], old, advantages, MASK)[0].sum(), inputs[0])
    checked = torch.autograd.grad(function(inputs[1]).sum(), inputs[1])
    torch.testing.assert_close(found, checked)


@every_surrogate
def test_what_the_mask_leaves_out_has_no_effect_on_value_or_gradient_even_if_nan(surrogate):
    logprobs, old, advantages = make()
    results = []
    for filler in (1.0, math.nan, math.inf, -math.inf):
        inputs = [torch.where(MASK, values, filler) for values in (logprobs, old, advantages)]
        inputs[0].requires_grad_()
        losses, clipped = surrogate(*inputs, MASK)
        losses.sum().backward()
        assert (losses[~MASK] == 0).all()
        assert not clipped[~MASK].any()
        results.append([losses.detach(), clipped, inputs[0].grad])
    for other in results[1:]:
        for expected, found in zip(results[0], other, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert (results[0][2][~MASK] == 0).all()


@every_surrogate
@pytest.mark.parametrize("logprob", [-500.0, -math.inf, -0.1])
@pytest.mark.parametrize("old", [-500.0, -0.1])
@pytest.mark.parametrize("advantage", [2.0, 0.0, -2.0])
def test_any_log_ratio_gives_a_number_and_a_finite_gradient(surrogate, logprob, old, advantage):
    logprobs = torch.full((2, 6), logprob, requires_grad=True)
    losses, _ = surrogate(logprobs, torch.full((2, 6), old), torch.full((2, 6), advantage), MASK)
    losses.sum().backward()
    assert not losses.isnan().any()
    assert logprobs.grad.isfinite().all()


@every_surrogate
def test_an_old_probability_of_zero_gives_a_number_and_a_finite_gradient(surrogate):
    logprobs = torch.full((2, 6), -1.0, requires_grad=True)
    for advantage in (2.0, 0.0, -2.0):
        old, advantages = torch.full((2, 6), -math.inf), torch.full((2, 6), advantage)
        losses, _ = surrogate(logprobs, old, advantages, MASK)
        (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
        assert losses.isfinite().all()
        assert gradient.isfinite().all()


@every_surrogate
def test_an_empty_mask_gives_zero(surrogate):
    nothing = torch.full((2, 6), math.nan)
    logprobs = nothing.clone().requires_grad_()
    losses, clipped = surrogate(logprobs, nothing, nothing, torch.zeros_like(MASK))
    losses.sum().backward()
    assert (losses == 0).all()
    assert (logprobs.grad == 0).all()
    assert not clipped.any()


@every_surrogate
def test_old_log_probs_and_advantages_get_no_gradient(surrogate):
    inputs = [values.clone().requires_grad_() for values in make()]
    surrogate(*inputs, MASK)[0].sum().backward()
    assert inputs[0].grad is not None
    assert inputs[1].grad is None
    assert inputs[2].grad is None
