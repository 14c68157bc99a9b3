import math

import pytest
import torch

from stages.algorithms.losses.kl_penalty_surrogate import kl_penalty_surrogate

OLD = torch.tensor([[-1.0, 0.5, 2.0, -0.3, 0.0]], dtype=torch.float64).log_softmax(-1)
LOGITS = torch.tensor([[0.7, -0.5, 1.0, 0.2, 0.4]], dtype=torch.float64)
ALL = torch.ones(1, 5, dtype=torch.bool)
NONE = torch.zeros(1, 5, dtype=torch.float64)


def test_hand_worked_numbers():
    # Ratio 2, A = 3, beta 0.5: -6 + 0.5 (2 - 1 - ln 2). Gradient -6 + 0.5 (2 - 1) = -5.5.
    logprobs = torch.tensor([[math.log(2) - 1]], dtype=torch.float64, requires_grad=True)
    losses, clipped = kl_penalty_surrogate(
        logprobs, torch.full_like(logprobs, -1.0), torch.full_like(logprobs, 3.0),
        torch.tensor([[True]]), beta=0.5,
    )  # fmt: skip
    losses.sum().backward()
    assert losses.item() == pytest.approx(-5.5 - 0.5 * math.log(2))
    assert logprobs.grad.item() == pytest.approx(-5.5)
    assert not clipped.any()


def test_the_penalty_is_the_divergence_from_old_to_new_in_the_mean_and_in_its_gradient():
    # Exactly: every token of the vocabulary, with the probability that the old policy gives it.
    logits = [LOGITS.clone().requires_grad_() for _ in range(2)]
    penalty, _ = kl_penalty_surrogate(logits[0].log_softmax(-1), OLD, NONE, ALL, beta=1.0)
    found = (OLD.exp() * penalty).sum()
    exact = (OLD.exp() * (OLD - logits[1].log_softmax(-1))).sum()
    torch.testing.assert_close(found, exact)
    found.backward()
    exact.backward()
    torch.testing.assert_close(logits[0].grad, logits[1].grad)


def test_the_penalty_is_never_negative_and_zero_without_a_move():
    new = LOGITS.log_softmax(-1)
    assert (kl_penalty_surrogate(new, OLD, NONE, ALL, beta=1.0)[0] > 0).all()
    assert (kl_penalty_surrogate(OLD, OLD, NONE, ALL, beta=1.0)[0] == 0).all()
