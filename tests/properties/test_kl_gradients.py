"""The mean gradient of each way to penalise a divergence, through the whole objective.

Over three tokens and exactly: each is in the batch as often as the policy draws it.
"""

import objective_choices
import pytest
import random_grids
import torch
from random_grids import Grids

from stages.algorithms.token_advantages import teacher_log_ratio

P, Q = torch.tensor([0.5, 0.25, 0.25]).double(), torch.tensor([0.25, 0.125, 0.625]).double()
# Each token as often as the policy draws it: the mean over rows is the expectation, exactly.
DRAWN = torch.tensor([0, 0, 1, 2])


BEHAVIOUR = torch.tensor([0.25, 0.5, 0.25]).double()
DRAWN_BY_BEHAVIOUR = torch.tensor([0, 1, 1, 2])


def expected_gradient(kl, surrogate="clip", advantages=None, sampler=P, drawn=DRAWN):
    """Of the objective's mean over the tokens `drawn` by `sampler`, by the logits of P."""
    grid = torch.zeros(4, 1, dtype=torch.float64)
    logits = P.log().requires_grad_()
    logprobs = logits.log_softmax(0)
    columns = {name: P.log()[drawn][:, None] for name in ("logprobs", "old")}
    columns |= {"sampler": sampler.log()[drawn][:, None], "ref": Q.log()[drawn][:, None]}
    columns |= {"entropies": grid}
    columns["advantages"] = grid if advantages is None else advantages
    rows = Grids(columns, torch.ones(4, 1, dtype=torch.bool), torch.zeros(4, dtype=torch.bool))
    method = objective_choices.make({"surrogate": surrogate, "aggregation": "token_mean"}, kl)
    _, gradients = random_grids.step(rows, method, [[0, 1], [2], [3]])
    (result,) = torch.autograd.grad(logprobs[drawn], logits, gradients["logprobs"][:, 0])
    return result


def divergence_gradient(first_is_policy):
    logits = P.log().requires_grad_()
    p = logits.softmax(0)
    divergence = (p * (p / Q).log()).sum() if first_is_policy else (Q * (Q / p).log()).sum()
    return torch.autograd.grad(divergence, logits)[0]


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_kl_estimators_have_the_gradients_they_are_said_to_have(level):
    def found(estimator, is_corrected):
        kl = {"kl": "loss", "kl_estimator": estimator, "kl_level": level}
        gradient = expected_gradient({**kl, "kl_corrected": is_corrected})
        return gradient / 0.3  # the weight in `random_grids.step`

    backward, forward = divergence_gradient(True), divergence_gradient(False)
    torch.testing.assert_close(found("k1", False), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(found("k2", False), backward)
    torch.testing.assert_close(found("k3", False), forward)
    torch.testing.assert_close(found("k1", True), backward)
    torch.testing.assert_close(found("k3", True), backward)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_a_corrected_estimate_has_the_gradient_of_the_divergence_on_a_stale_batch(estimator):
    """Sampled by another policy than the old one, as `staleness` or another engine makes it."""
    kl = {"kl": "loss", "kl_estimator": estimator, "kl_corrected": True}
    gradient = expected_gradient(kl, sampler=BEHAVIOUR, drawn=DRAWN_BY_BEHAVIOUR)
    torch.testing.assert_close(gradient / 0.3, divergence_gradient(True))


def test_a_teachers_log_ratio_as_advantage_has_the_gradient_of_the_divergence():
    grid = torch.ones(4, 1, dtype=torch.bool)
    drawn = (log.double()[DRAWN][:, None] for log in (P.log(), Q.log()))
    advantages = teacher_log_ratio(*drawn, grid)
    result = expected_gradient({"kl": "none"}, "reinforce", advantages=advantages)
    torch.testing.assert_close(result, divergence_gradient(True))


def test_a_token_answers_for_itself_alone_where_a_teacher_is_followed():
    """Two tokens of three each, enumerated: the sum of each token's KL, given those before it."""
    logits = torch.tensor([[0.3, -0.2, 0.1], [1.0, 0.0, -1.0], [0.2, 0.5, 0.1], [0.0, 0.7, -0.3]])
    logits = logits.double().requires_grad_()  # of the first token, and of the second after each
    teacher = torch.tensor([[0.0, 0.5, -0.5], [0.1, 0.2, 0.3], [-1.0, 0.0, 1.0], [0.4, 0.0, 0.0]])
    teacher_logprobs, logprobs = teacher.double().log_softmax(1), logits.log_softmax(1)
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    chosen = torch.stack([torch.zeros(9, dtype=torch.long), pairs[:, 0] + 1], 1), pairs
    mask = torch.ones(9, 2, dtype=torch.bool)
    advantages = teacher_log_ratio(logprobs[chosen], teacher_logprobs[chosen], mask)
    assert not advantages.requires_grad
    weights = logprobs[chosen].sum(1).exp().detach()
    loss = (weights[:, None] * -advantages * logprobs[chosen]).sum()
    (actual,) = torch.autograd.grad(loss, logits, retain_graph=True)
    divergences = (logprobs.exp() * (logprobs - teacher_logprobs)).sum(1)
    visits = torch.cat([torch.ones(1).double(), logprobs[0].exp().detach()])
    (expected,) = torch.autograd.grad((visits * divergences).sum(), logits)
    torch.testing.assert_close(actual, expected)


def test_kl_in_the_reward_has_the_gradient_of_the_divergence():
    cost = (P.log() - Q.log())[DRAWN][:, None]
    result = expected_gradient({"kl": "none"}, "reinforce", advantages=-cost)
    torch.testing.assert_close(result, divergence_gradient(True))
