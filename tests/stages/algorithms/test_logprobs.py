"""Log-probabilities, entropies and forward KL, whole and in chunks: value, gradient, memory."""

import pytest
import torch
from largest_tensor import LargestTensor
from torch._subclasses.fake_tensor import FakeTensorMode

from stages.algorithms.forward_kl import forward_kl
from stages.algorithms.logprobs import ChunkLimits, OutputLayer, Term, evaluate_term, token_logprobs

VOCAB, TOKENS, WIDTH, TEACHER_WIDTH = 7, 10, 4, 3
WHOLE = ChunkLimits(10**9, 1)
LIMITS = {
    "whole": WHOLE, "one": ChunkLimits(1, 1), "three": ChunkLimits(3 * VOCAB, 1),
    "all_but_one": ChunkLimits((TOKENS - 1) * VOCAB, 1), "at_least_4": ChunkLimits(1, 4),
}  # fmt: skip
in_chunks = pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)


def make(width=WIDTH, seed=0, dtype=torch.float64, tokens=TOKENS):
    """Hidden states, weight and bias."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (tokens, width), (VOCAB, width), (VOCAB,)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def chosen(tokens=TOKENS):
    return torch.arange(tokens) * 3 % VOCAB


def of_logprobs(layer, limits=WHOLE, temperature=0.7, **options):
    hidden, *output = layer
    return token_logprobs(hidden, OutputLayer(*output), chosen(len(hidden)),
        temperature=temperature, limits=limits, **options)  # fmt: skip


def of_divergence(layer, teacher=None, limits=WHOLE, temperature=0.7):
    teacher = make(TEACHER_WIDTH, 1, layer[0].dtype, len(layer[0])) if teacher is None else teacher
    policy, other = ((hidden, OutputLayer(*output)) for hidden, *output in (layer, teacher))
    return forward_kl(*policy, *other, temperature=temperature, limits=limits)


def define(name, layer, temperature):
    """With autograd, nothing left out or in chunks."""
    hidden, weight, bias = layer
    q = ((hidden @ weight.T + bias) / temperature).softmax(-1)
    if name == "logprobs":
        return q[range(TOKENS), chosen()].log()
    if name == "entropy":
        return -(q * q.log()).sum(-1)
    hidden, weight, bias = make(TEACHER_WIDTH, 1)
    p = ((hidden @ weight.T + bias) / temperature).softmax(-1)
    return (p * (p / q).log()).sum(-1)


TERMS = {
    "logprobs": lambda *args, **options: of_logprobs(*args, **options)[0],
    "entropy": lambda *args, **options: of_logprobs(*args, entropy_gradient=True, **options)[1],
    "divergence": of_divergence,
}
every_term = pytest.mark.parametrize("name", TERMS)


@every_term
@in_chunks
@pytest.mark.parametrize("temperature", [1.0, 0.7, 3.0])
def test_values_and_gradients_are_those_of_the_definition(name, limits, temperature):
    expected, actual = ([x.clone().requires_grad_() for x in make()] for _ in range(2))
    weights = torch.arange(1.0, TOKENS + 1).double() * (torch.arange(TOKENS) % 4 > 0)
    defined = define(name, expected, temperature)
    (defined * weights).sum().backward()
    value = TERMS[name](actual, limits=limits, temperature=temperature)
    (value * weights).sum().backward()
    torch.testing.assert_close(value, defined, rtol=1e-12, atol=1e-12)
    for tensor, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(tensor.grad, reference.grad, rtol=1e-11, atol=1e-11)
    assert not actual[0].grad[::4].any(), "what counts nothing has no gradient"


@in_chunks
def test_entropies_have_a_gradient_on_request_alone(limits):
    layer = [x.requires_grad_() for x in make()]
    assert not of_logprobs(layer, limits)[1].requires_grad
    with torch.no_grad():
        assert not of_logprobs(layer, limits, entropy_gradient=True)[1].requires_grad


@in_chunks
def test_without_entropy_log_probs_keep_their_bits_and_entropies_are_nan(limits):
    kept = []
    for entropy in (True, False):
        layer = [x.requires_grad_() for x in make(dtype=torch.float32)]
        logprobs, entropies = of_logprobs(layer, limits, entropy=entropy)
        logprobs.sum().backward()
        assert entropies.isnan().all() == (not entropy)
        assert not entropies.requires_grad
        kept.append((logprobs, layer[0].grad))
    assert all(map(torch.equal, *kept))


@in_chunks
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_equal_teacher_has_no_divergence_and_a_teacher_no_gradient(limits, dtype):
    student = [x.requires_grad_() for x in make(dtype=dtype)]
    value = of_divergence(student, [x.detach() for x in student], limits)
    assert value.tolist() == [0.0] * TOKENS
    value.sum().backward()
    assert all(x.grad.abs().max() <= 20 * torch.finfo(dtype).eps for x in student)
    teacher = [x.requires_grad_() for x in make(TEACHER_WIDTH, 1, dtype)]
    of_divergence(student, teacher, limits).sum().backward()
    assert all(x.grad is None for x in teacher)


@every_term
def test_no_tensor_is_larger_than_the_hidden_states(name):
    layer = make(tokens=200)
    layer[0].requires_grad_()
    with LargestTensor() as largest:
        TERMS[name](layer, limits=ChunkLimits(20 * VOCAB, 1)).sum().backward()
    assert largest.elements == 200 * WIDTH  # all logits would be 200 x 7


def test_bfloat16_logits_are_normalised_in_float32():
    # Rounded logits, exactly so normalised: to bfloat16's 8 bits would be 1e-2.
    hidden, weight, _ = make(dtype=torch.bfloat16)
    for part in of_logprobs([hidden, weight, None]), [of_divergence([hidden, weight, None], [
            hidden, weight.flip(0), None])]:  # fmt: skip
        assert {x.dtype for x in part} == {torch.float32}
    logits = (hidden @ weight.T).double() / 0.7
    expected = logits.log_softmax(-1)[range(TOKENS), chosen()]
    actual, _ = of_logprobs([hidden, weight, None])
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)


@every_term
def test_under_autocast_chunks_are_as_the_whole_and_gradients_in_float32(name):
    kept = []
    for limits in (WHOLE, ChunkLimits(1, 16)):
        layer = [x.requires_grad_() for x in make(dtype=torch.float32, tokens=64)]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = TERMS[name](layer, limits=limits)
        (value * torch.arange(64)).sum().backward()
        assert value.dtype == layer[1].grad.dtype == torch.float32
        kept.append([value.detach(), *(x.grad for x in layer)])
    assert torch.equal(kept[0][0], kept[1][0])
    for whole, chunked in zip(*kept, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=0, atol=0.02 * whole.abs().max().item())


def test_a_chunk_has_at_least_the_fewest_tokens():
    (hidden, *output), sizes = make(), []

    def value(logprobs, _):
        sizes.append(len(logprobs))
        return (logprobs.sum(-1),)

    term = Term(value, lambda *_: hidden, 1.0, 0)
    evaluate_term(term, hidden, OutputLayer(*output), chosen(), ChunkLimits(1, 4))
    assert sizes == [4, 4, 2]


def test_the_logits_of_a_large_vocabulary_are_never_in_memory_together():
    vocab, tokens = 151_936, 16_384
    with FakeTensorMode(), LargestTensor() as largest:
        hidden, weight = (torch.empty(n, WIDTH, requires_grad=True) for n in (tokens, vocab))
        ids = torch.zeros(tokens, dtype=torch.long)
        logprobs, _ = token_logprobs(hidden, OutputLayer(weight), ids, temperature=1.0)
        logprobs.sum().backward()
    assert largest.elements <= tokens * vocab / 8
