import math

import torch

from stages.algorithms.losses.reinforce import reinforce

MASK = torch.tensor([[True, True, False]])


def test_hand_worked_numbers():
    # -A log p: -2 x -0.5 = 1; -(-3) x -1 = -3. The gradient is -A.
    logprobs = torch.tensor([[-0.5, -1.0, -7.0]], requires_grad=True)
    losses, clipped = reinforce(
        logprobs, torch.full((1, 3), math.nan), torch.tensor([[2.0, -3.0, 5.0]]), MASK
    )
    losses.sum().backward()
    assert losses.tolist() == [[1.0, -3.0, 0.0]]
    assert logprobs.grad.tolist() == [[-2.0, 3.0, 0.0]]
    assert not clipped.any()


def test_the_mean_gradient_is_that_of_the_expected_advantage():
    # Exactly: every token of the vocabulary, with its probability.
    logits = torch.tensor([[0.7, -0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    logprobs = logits.log_softmax(-1)
    losses, _ = reinforce(logprobs, logprobs, advantages, torch.ones_like(MASK))
    (found,) = torch.autograd.grad((logprobs.exp().detach() * losses).sum(), logits)
    (expected,) = torch.autograd.grad(-(logits.softmax(-1) * advantages).sum(), logits)
    torch.testing.assert_close(found, expected)


def test_a_token_without_advantage_adds_nothing_even_at_probability_zero():
    logprobs = torch.tensor([[-math.inf, -1.0, -1.0]], requires_grad=True)
    losses, _ = reinforce(logprobs, logprobs, torch.zeros(1, 3), MASK)
    losses.sum().backward()
    assert losses.tolist() == [[0.0, 0.0, 0.0]]
    assert logprobs.grad.tolist() == [[0.0, 0.0, 0.0]]
