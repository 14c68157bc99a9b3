"""Each loss by hand, and what holds for every loss of a policy gradient, whatever its limits."""

import functools
import math

import pytest
import torch

from stages.algorithms.aggregation import sequence_mean
from stages.algorithms.losses.surrogates import (
    cispo,
    clipped_surrogate,
    dual_clip_surrogate,
    kl_penalty_surrogate,
    reinforce,
    sequence_ratio_surrogate,
)

LIMITS = {"low": 0.2, "high": 0.3}


def at_ratio(surrogate, ratio, advantage):
    """Loss, whether the clip was active and the gradient in the log-prob, at one token."""
    logprobs = torch.tensor([[math.log(ratio) - 1.0]], dtype=torch.float64, requires_grad=True)
    old, advantages = torch.full_like(logprobs, -1.0), torch.full_like(logprobs, advantage)
    losses, active = surrogate(logprobs, old, advantages, torch.tensor([[True]]))
    losses.sum().backward()
    return losses.item(), active.item(), logprobs.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "active", "gradient"),
    [
        # Inside: -ratio A, and its derivative in the log-prob is the same number.
        (1.1, 2.0, -2.2, False, -2.2),
        (0.9, -2.0, 1.8, False, 1.8),
        # Beyond the side that the advantage pushes to: -1.3 A and -0.8 A, no gradient.
        (1.5, 2.0, -2.6, True, 0.0),
        (0.5, -2.0, 1.6, True, 0.0),
        # Beyond the other side the pessimistic minimum is the unclipped one.
        (0.5, 2.0, -1.0, False, -1.0),
        (1.5, -2.0, 3.0, False, 3.0),
        # No advantage, no loss and no clip.
        (1.5, 0.0, 0.0, False, 0.0),
    ],
)
def test_clipped_surrogate_hand_worked_numbers(ratio, advantage, loss, active, gradient):
    result = at_ratio(functools.partial(clipped_surrogate, **LIMITS), ratio, advantage)
    assert result == (pytest.approx(loss), active, pytest.approx(gradient, abs=1e-12))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "active", "gradient"),
    [
        # A < 0: beyond ratio 3 the loss stays at -3 A.
        (5.0, -2.0, 6.0, True, 0.0),
        (2.5, -2.0, 5.0, False, 5.0),
        (0.5, -2.0, 1.6, True, 0.0),
        # A > 0: PPO's clip only, whatever the ratio.
        (5.0, 2.0, -2.6, True, 0.0),
        (1.1, 2.0, -2.2, False, -2.2),
    ],
)
def test_dual_clip_hand_worked_numbers(ratio, advantage, loss, active, gradient):
    result = at_ratio(functools.partial(dual_clip_surrogate, **LIMITS, cap=3.0), ratio, advantage)
    assert result == (pytest.approx(loss), active, pytest.approx(gradient, abs=1e-12))


def test_without_a_reachable_cap_it_is_the_clipped_surrogate():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 4, 7, generator=generator, dtype=torch.float64).unbind()
    mask = torch.ones(4, 7, dtype=torch.bool)
    result = dual_clip_surrogate(*inputs, mask, **LIMITS, cap=1e9)
    torch.testing.assert_close(result, clipped_surrogate(*inputs, **LIMITS))


MASK = torch.tensor([[True, True, False], [True, True, True]])


def make(*log_ratios):
    old = torch.full((2, 3), -1.0, dtype=torch.float64)
    return (old + torch.tensor(log_ratios, dtype=torch.float64)).requires_grad_(), old


def test_sequence_ratio_hand_worked_numbers():
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
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


def test_the_order_of_a_completions_tokens_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    logprobs, old = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64)
    mask, advantages = torch.ones(4, 6, dtype=torch.bool), torch.ones(4, 6, dtype=torch.float64)
    actual, _ = sequence_ratio_surrogate(
        logprobs.flip(1), old.flip(1), advantages, mask, **LIMITS, normalise=True
    )
    expected, _ = sequence_ratio_surrogate(
        logprobs, old, advantages, mask, **LIMITS, normalise=True
    )
    torch.testing.assert_close(actual, expected)


OLD = torch.tensor([[-1.0, 0.5, 2.0, -0.3, 0.0]], dtype=torch.float64).log_softmax(-1)
LOGITS = torch.tensor([[0.7, -0.5, 1.0, 0.2, 0.4]], dtype=torch.float64)
ALL = torch.ones(1, 5, dtype=torch.bool)
NONE = torch.zeros(1, 5, dtype=torch.float64)


def test_kl_penalty_surrogate_hand_worked_numbers():
    # Ratio 2, A = 3, beta 0.5: -6 + 0.5 (2 - 1 - ln 2). Gradient -6 + 0.5 (2 - 1) = -5.5.
    result = at_ratio(functools.partial(kl_penalty_surrogate, beta=0.5), 2.0, 3.0)
    assert result == (pytest.approx(-5.5 - 0.5 * math.log(2)), False, pytest.approx(-5.5))


def test_the_penalty_is_the_divergence_from_old_to_new_in_the_mean_and_in_its_gradient():
    # Exactly: every token of the vocabulary, with the probability that the old policy gives it.
    logits = [LOGITS.clone().requires_grad_() for _ in range(2)]
    penalty, _ = kl_penalty_surrogate(logits[0].log_softmax(-1), OLD, NONE, ALL, beta=1.0)
    result = (OLD.exp() * penalty).sum()
    exact = (OLD.exp() * (OLD - logits[1].log_softmax(-1))).sum()
    torch.testing.assert_close(result, exact)
    result.backward()
    exact.backward()
    torch.testing.assert_close(logits[0].grad, logits[1].grad)


def test_the_penalty_is_never_negative_and_zero_without_a_move():
    new = LOGITS.log_softmax(-1)
    assert (kl_penalty_surrogate(new, OLD, NONE, ALL, beta=1.0)[0] > 0).all()
    assert (kl_penalty_surrogate(OLD, OLD, NONE, ALL, beta=1.0)[0] == 0).all()


REINFORCE_MASK = torch.tensor([[True, True, False]])


def test_reinforce_hand_worked_numbers():
    # -A log p: -2 x -0.5 = 1; -(-3) x -1 = -3. The gradient is -A.
    logprobs = torch.tensor([[-0.5, -1.0, -7.0]], requires_grad=True)
    advantages = torch.tensor([[2.0, -3.0, 5.0]])
    losses, clipped = reinforce(logprobs, advantages, REINFORCE_MASK)
    losses.sum().backward()
    assert losses.tolist() == [[1.0, -3.0, 0.0]]
    assert logprobs.grad.tolist() == [[-2.0, 3.0, 0.0]]
    assert not clipped.any()


def test_the_mean_gradient_is_that_of_the_expected_advantage():
    # Exactly: every token of the vocabulary, with its probability.
    logits = torch.tensor([[0.7, -0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    logprobs = logits.log_softmax(-1)
    losses, _ = reinforce(logprobs, advantages, torch.ones_like(REINFORCE_MASK))
    (actual,) = torch.autograd.grad((logprobs.exp().detach() * losses).sum(), logits)
    (expected,) = torch.autograd.grad(-(logits.softmax(-1) * advantages).sum(), logits)
    torch.testing.assert_close(actual, expected)


def test_a_token_without_advantage_adds_nothing_even_at_probability_zero():
    logprobs = torch.tensor([[-math.inf, -1.0, -1.0]], requires_grad=True)
    losses, _ = reinforce(logprobs, torch.zeros(1, 3), REINFORCE_MASK)
    losses.sum().backward()
    assert losses.tolist() == [[0.0, 0.0, 0.0]]
    assert logprobs.grad.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("ratio", "advantage", "cap", "weight"),
    [
        (1.5, 2.0, 2.0, 1.5),
        # Above the cap the token still counts, at the capped weight, whatever the sign.
        (5.0, 2.0, 2.0, 2.0),
        (5.0, -2.0, 2.0, 2.0),
        # No lower limit.
        (0.01, -2.0, 2.0, 0.01),
        # The cap is the weight itself: 0.2 makes a fifth of an unmoved token.
        (1.0, 2.0, 0.2, 0.2),
    ],
)
def test_cispo_hand_worked_numbers(ratio, advantage, cap, weight):
    # Loss -weight A logprob, gradient -weight A: the weight has none.
    loss, clipped, gradient = at_ratio(functools.partial(cispo, cap=cap), ratio, advantage)
    assert loss == pytest.approx(-weight * advantage * (math.log(ratio) - 1.0))
    assert gradient == pytest.approx(-weight * advantage)
    assert clipped == (ratio > cap)


SURROGATES = {
    "clipped": functools.partial(clipped_surrogate, **LIMITS),
    "dual_clip": functools.partial(dual_clip_surrogate, **LIMITS, cap=3.0),
    "kl_penalty": functools.partial(kl_penalty_surrogate, beta=0.5),
    "gspo": functools.partial(sequence_ratio_surrogate, **LIMITS, normalise=True),
    "sequence": functools.partial(sequence_ratio_surrogate, **LIMITS, normalise=False),
    "cispo": functools.partial(cispo, cap=2.0),
    "reinforce": lambda new, _, advantages, mask: reinforce(new, advantages, mask),
}
every_surrogate = pytest.mark.parametrize(
    "surrogate", [pytest.param(function, id=name) for name, function in SURROGATES.items()]
)
LOSSES_MASK = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])


def losses_make():
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
    _, _, advantages = losses_make()
    lengths = LOSSES_MASK.sum(1, keepdim=True)
    losses, clipped = surrogate(logprobs, logprobs, advantages, LOSSES_MASK)
    (actual,) = torch.autograd.grad((losses / lengths).sum(), logits, retain_graph=True)
    objective = torch.where(LOSSES_MASK, advantages * logprobs, 0.0) / lengths
    # The ratio of the summed log-probabilities moves with every token, not with their mean.
    scale = lengths[..., None] if surrogate is SURROGATES["sequence"] else 1
    (expected,) = torch.autograd.grad(-objective.sum(), logits)
    torch.testing.assert_close(actual, expected * scale)
    assert not clipped.any()


@every_surrogate
def test_losses_gradients_are_those_of_finite_differences(surrogate):
    logprobs, old, advantages = losses_make()
    with torch.no_grad():
        weights = torch.exp(logprobs - old).clamp(max=2.0)

    def function(p):
        # The weight of CISPO is no part of its derivative: hold it for the differences too.
        if surrogate is SURROGATES["cispo"]:
            return torch.where(LOSSES_MASK, -weights * advantages * p, 0.0)
        return surrogate(p, old, advantages, LOSSES_MASK)[0]

    assert torch.autograd.gradcheck(function, logprobs.clone().requires_grad_())
    inputs = [logprobs.clone().requires_grad_() for _ in range(2)]
    result = torch.autograd.grad(
        surrogate(inputs[0], old, advantages, LOSSES_MASK)[0].sum(), inputs[0]
    )
    checked = torch.autograd.grad(function(inputs[1]).sum(), inputs[1])
    torch.testing.assert_close(result, checked)


@every_surrogate
def test_what_the_mask_leaves_out_has_no_effect_on_value_or_gradient_even_if_nan(surrogate):
    logprobs, old, advantages = losses_make()
    results = []
    for filler in (1.0, math.nan, math.inf, -math.inf):
        inputs = [
            torch.where(LOSSES_MASK, values, filler) for values in (logprobs, old, advantages)
        ]
        inputs[0].requires_grad_()
        losses, clipped = surrogate(*inputs, LOSSES_MASK)
        losses.sum().backward()
        assert (losses[~LOSSES_MASK] == 0).all()
        assert not clipped[~LOSSES_MASK].any()
        results.append([losses.detach(), clipped, inputs[0].grad])
    for other in results[1:]:
        for expected, actual in zip(results[0], other, strict=True):
            torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert (results[0][2][~LOSSES_MASK] == 0).all()


@every_surrogate
@pytest.mark.parametrize("logprob", [-500.0, -math.inf, -0.1])
@pytest.mark.parametrize("old", [-500.0, -0.1])
@pytest.mark.parametrize("advantage", [2.0, 0.0, -2.0])
def test_any_log_ratio_gives_a_number_and_a_finite_gradient(surrogate, logprob, old, advantage):
    logprobs = torch.full((2, 6), logprob, requires_grad=True)
    losses, _ = surrogate(
        logprobs, torch.full((2, 6), old), torch.full((2, 6), advantage), LOSSES_MASK
    )
    losses.sum().backward()
    assert not losses.isnan().any()
    assert logprobs.grad.isfinite().all()


@every_surrogate
def test_an_old_probability_of_zero_gives_a_number_and_a_finite_gradient(surrogate):
    logprobs = torch.full((2, 6), -1.0, requires_grad=True)
    for advantage in (2.0, 0.0, -2.0):
        old, advantages = torch.full((2, 6), -math.inf), torch.full((2, 6), advantage)
        losses, _ = surrogate(logprobs, old, advantages, LOSSES_MASK)
        (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
        assert losses.isfinite().all()
        assert gradient.isfinite().all()


@every_surrogate
def test_an_empty_mask_gives_zero(surrogate):
    nothing = torch.full((2, 6), math.nan)
    logprobs = nothing.clone().requires_grad_()
    losses, clipped = surrogate(logprobs, nothing, nothing, torch.zeros_like(LOSSES_MASK))
    losses.sum().backward()
    assert (losses == 0).all()
    assert (logprobs.grad == 0).all()
    assert not clipped.any()


@every_surrogate
def test_losses_old_log_probs_and_advantages_get_no_gradient(surrogate):
    inputs = [values.clone().requires_grad_() for values in losses_make()]
    surrogate(*inputs, LOSSES_MASK)[0].sum().backward()
    assert inputs[0].grad is not None
    assert inputs[1].grad is None
    assert inputs[2].grad is None
