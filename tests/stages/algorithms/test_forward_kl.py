"""The forward KL from its definition, its gradient, and that no tensor holds all logits."""

import math

import pytest
import torch
from largest_tensor import LargestTensor
from scipy.special import log_softmax, rel_entr

from stages.algorithms.forward_kl import forward_kl
from stages.algorithms.logprobs import ChunkLimits, OutputLayer

VOCAB, TOKENS, WIDTH, TEACHER_WIDTH = 7, 10, 4, 3
ALL, FEW = ChunkLimits(10**9, 1), ChunkLimits(3 * VOCAB, 1)


def make(width, seed, dtype=torch.float64, tokens=TOKENS):
    """Hidden states, weight and bias."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (tokens, width), (VOCAB, width), (VOCAB,)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def divergence(own, other, temperature=0.7, limits=ALL):
    policy, teacher = ((hidden, OutputLayer(*layer)) for hidden, *layer in (own, other))
    return forward_kl(*policy, *teacher, temperature=temperature, limits=limits)


def define(own, other, temperature):
    """sum_v p_v (log p_v - log q_v) with autograd, nothing left out or in chunks."""
    q, p = ((h @ w.T + b).div(temperature).softmax(-1) for h, w, b in (own, other))
    return (p * (p / q).log()).sum(-1)


@pytest.mark.parametrize("limits", [ALL, ChunkLimits(1, 1)])
def test_a_number_by_hand(limits):
    # Logits (ln 3, 0) of the teacher, (0, 0) of the policy: p = (3/4, 1/4), q = (1/2, 1/2).
    teacher = torch.tensor([[math.log(3.0)]]).double(), torch.tensor([[1.0], [0.0]]).double()
    policy = [torch.zeros(1, 1).double().requires_grad_(), torch.ones(2, 1).double()]
    result = forward_kl(
        policy[0], OutputLayer(policy[1]), teacher[0], OutputLayer(teacher[1]),
        temperature=1.0, limits=limits,
    )  # fmt: skip
    assert result.item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    # At temperature 2, logits (ln 9, 0) of the teacher are the same.
    twice = forward_kl(
        policy[0], OutputLayer(policy[1]), 2 * teacher[0], OutputLayer(teacher[1]),
        temperature=2.0, limits=limits,
    )  # fmt: skip
    assert twice.item() == pytest.approx(result.item())


@pytest.mark.parametrize("limits", [ALL, FEW])
@pytest.mark.parametrize("temperature", [1.0, 0.7, 3.0])
def test_value_and_gradient_are_those_of_the_definition(limits, temperature):
    student, other = make(WIDTH, 0), make(TEACHER_WIDTH, 1)
    expected, actual = (
        [tensor.clone().requires_grad_() for tensor in student] for _ in range(2)
    )  # fmt: skip
    weights = torch.arange(1.0, TOKENS + 1).double()
    defined = define(expected, other, temperature)
    (defined * weights).sum().backward()
    value = divergence(actual, other, temperature, limits)
    (value * weights).sum().backward()
    torch.testing.assert_close(value, defined, rtol=1e-12, atol=1e-12)
    for tensor, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(tensor.grad, reference.grad, rtol=1e-11, atol=1e-11)
    # Another library's words for it.
    p, q = (
        log_softmax(((h @ w.T + b) / temperature).numpy(), axis=-1) for h, w, b in (other, student)
    )
    assert value.tolist() == pytest.approx(rel_entr(math.e**p, math.e**q).sum(-1).tolist())


@pytest.mark.parametrize("limits", [ALL, FEW])
def test_the_teacher_gets_no_gradient(limits):
    student, other = make(WIDTH, 0), make(TEACHER_WIDTH, 1)
    for tensor in (*student, *other):
        tensor.requires_grad_()
    divergence(student, other, limits=limits).sum().backward()
    assert all(tensor.grad is None for tensor in other)
    assert all(tensor.grad.any() for tensor in student)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("limits", [ALL, FEW])
def test_a_teacher_equal_to_the_policy_has_no_divergence_and_no_gradient(limits, dtype):
    student = [tensor.requires_grad_() for tensor in make(WIDTH, 0, dtype)]
    value = divergence(student, [tensor.detach() for tensor in student], limits=limits)
    assert value.tolist() == [0.0] * TOKENS
    value.sum().backward()
    rounding = 20 * torch.finfo(dtype).eps
    assert all(tensor.grad.abs().max() <= rounding for tensor in student)


def test_a_token_whose_value_counts_nothing_has_no_gradient():
    student, other = make(WIDTH, 0), make(TEACHER_WIDTH, 1)
    student[0].requires_grad_()
    mask = torch.arange(TOKENS) % 3 > 0
    (divergence(student, other, limits=FEW) * mask).sum().backward()
    assert torch.equal(student[0].grad.any(-1), mask)


def test_no_tensor_is_as_large_as_all_logits_forward_or_backward():
    student, other = make(WIDTH, 0, tokens=200), make(TEACHER_WIDTH, 1, tokens=200)
    student[0].requires_grad_()
    with LargestTensor() as largest:
        divergence(student, other, limits=ChunkLimits(20 * VOCAB, 1)).sum().backward()
    # The hidden states themselves are 200 x 4; all logits would be 200 x 7.
    assert largest.elements == 200 * WIDTH


def test_under_autocast_the_sums_are_in_float32():
    student, other = make(WIDTH, 0, torch.float32), make(TEACHER_WIDTH, 1, torch.float32)
    exact = divergence(student, other)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        for limits in (ALL, FEW):
            result = divergence(student, other, limits=limits)
            assert result.dtype == torch.float32
            torch.testing.assert_close(result, exact, rtol=0.1, atol=0.02)


def test_different_numbers_of_logits_are_refused():
    student, other = make(WIDTH, 0), make(TEACHER_WIDTH, 1)
    other = [other[0], other[1][1:], other[2][1:]]
    with pytest.raises(ValueError, match="found 7 and 6"):
        divergence(student, other)


def test_of_no_token_there_is_no_value():
    student, other = make(WIDTH, 0, tokens=0), make(TEACHER_WIDTH, 1, tokens=0)
    assert divergence(student, other).shape == (0,)
