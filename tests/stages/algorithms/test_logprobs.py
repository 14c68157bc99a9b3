import math

import pytest
import torch
from largest_tensor import LargestTensor
from live_memory import LiveMemory
from moved_bytes import MovedBytes
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy

from stages.algorithms import logprobs as functions
from stages.algorithms.logprobs import ChunkLimits, OutputLayer

VOCAB, HIDDEN, TOKENS = 7, 4, 10


def make(dtype=torch.float64, tokens=TOKENS):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, HIDDEN, generator=generator, dtype=dtype)
    weight = torch.randn(VOCAB, HIDDEN, generator=generator, dtype=dtype)
    bias = torch.randn(VOCAB, generator=generator, dtype=dtype)
    token_ids = torch.randint(VOCAB, (tokens,), generator=generator)
    return hidden, weight, bias, token_ids


def token_logprobs(
    hidden, weight, token_ids, *, output_bias=None, max_logits=2**24, min_chunk=2048, **numbers
):
    output, limits = OutputLayer(weight, output_bias), ChunkLimits(max_logits, min_chunk)
    return functions.token_logprobs(hidden, output, token_ids, limits=limits, **numbers)


def test_a_hand_worked_number():
    # Logits (ln 3, 0): p = (3/4, 1/4). log p = (ln 3/4, ln 1/4), entropy = 2 ln 2 - 3/4 ln 3.
    hidden = torch.tensor([[math.log(3.0)], [math.log(3.0)]], dtype=torch.float64)
    weight = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    logprobs, entropies = token_logprobs(hidden, weight, torch.tensor([0, 1]), temperature=1.0)
    assert logprobs.tolist() == pytest.approx([math.log(0.75), math.log(0.25)])
    assert entropies.tolist() == pytest.approx([2 * math.log(2) - 0.75 * math.log(3)] * 2)


def test_temperature_divides_the_logits():
    # Logits (ln 9, 0) at temperature 2 are (ln 3, 0): p of token 0 is 3/4.
    hidden = torch.tensor([[math.log(9.0)]], dtype=torch.float64)
    weight = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    logprobs, _ = token_logprobs(hidden, weight, torch.tensor([0]), temperature=2.0)
    assert logprobs.item() == pytest.approx(math.log(0.75))


def test_it_is_minus_torchs_cross_entropy_bias_included():
    hidden, weight, bias, token_ids = make()
    logprobs, _ = token_logprobs(hidden, weight, token_ids, temperature=1.0, output_bias=bias)
    expected = -cross_entropy(hidden @ weight.T + bias, token_ids, reduction="none")
    torch.testing.assert_close(logprobs, expected)


def test_probabilities_of_the_whole_vocabulary_sum_to_one_and_a_flat_one_has_entropy_log_v():
    hidden, weight, _, _ = make()
    total = torch.zeros(TOKENS, dtype=torch.float64)
    for token in range(VOCAB):
        token_ids = torch.full((TOKENS,), token)
        total += token_logprobs(hidden, weight, token_ids, temperature=0.7)[0].exp()
    assert total.tolist() == pytest.approx([1.0] * TOKENS)
    _, entropies = token_logprobs(
        hidden, torch.zeros_like(weight), torch.zeros(TOKENS, dtype=torch.long), temperature=1.0
    )
    assert entropies.tolist() == pytest.approx([math.log(VOCAB)] * TOKENS)


@pytest.mark.parametrize("max_logits", [1, VOCAB, 3 * VOCAB, 10 * VOCAB])
def test_chunks_change_neither_values_nor_gradients(max_logits):
    hidden, weight, bias, token_ids = make()
    results = []
    for limit in (10**9, max_logits):
        inputs = [tensor.clone().requires_grad_() for tensor in (hidden, weight, bias)]
        logprobs, entropies = token_logprobs(
            inputs[0], inputs[1], token_ids, temperature=0.7, output_bias=inputs[2],
            max_logits=limit, min_chunk=1,
        )  # fmt: skip
        (logprobs * torch.arange(TOKENS)).sum().backward()
        results.append([logprobs.detach(), entropies, *(tensor.grad for tensor in inputs)])
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=1e-12, atol=1e-12)


def test_no_tensor_is_larger_than_the_limit_forward_or_backward():
    hidden, weight, _, token_ids = make(tokens=200)
    hidden.requires_grad_()
    with LargestTensor() as largest:
        logprobs, _ = token_logprobs(
            hidden, weight, token_ids, temperature=1.0, max_logits=20 * VOCAB, min_chunk=1
        )
        logprobs.sum().backward()
    # The hidden states themselves are 200 x 4; all logits would be 200 x 7 = 1400.
    assert largest.elements == 200 * HIDDEN


@pytest.mark.parametrize("max_logits", [10**9, 3 * VOCAB])
def test_gradients_are_those_of_finite_differences(max_logits):
    hidden, weight, bias, token_ids = make(tokens=4)

    def function(hidden, weight, bias):
        return token_logprobs(
            hidden,
            weight,
            token_ids,
            temperature=0.7,
            output_bias=bias,
            max_logits=max_logits,
            min_chunk=1,
        )[0]

    inputs = tuple(tensor.requires_grad_() for tensor in (hidden, weight, bias))
    assert torch.autograd.gradcheck(function, inputs)


def test_the_entropy_gets_no_gradient():
    hidden, weight, _, token_ids = make()
    _, entropies = token_logprobs(
        hidden.requires_grad_(), weight, token_ids, temperature=1.0, max_logits=VOCAB, min_chunk=1
    )
    assert not entropies.requires_grad


@pytest.mark.parametrize("max_logits", [10**9, 3 * VOCAB])
def test_the_entropy_gets_its_gradient_when_asked(max_logits):
    hidden, weight, bias, token_ids = make(tokens=4)

    def function(hidden, weight, bias):
        return token_logprobs(
            hidden, weight, token_ids, temperature=0.7, output_bias=bias, max_logits=max_logits,
            min_chunk=1, entropy_gradient=True,
        )[1]  # fmt: skip

    inputs = tuple(tensor.requires_grad_() for tensor in (hidden, weight, bias))
    assert torch.autograd.gradcheck(function, inputs)


def test_a_flat_distribution_has_the_greatest_entropy_so_no_gradient():
    hidden, weight, _, token_ids = make()
    weight = torch.zeros_like(weight).requires_grad_()
    _, entropies = token_logprobs(hidden, weight, token_ids, temperature=1.0, entropy_gradient=True)
    entropies.sum().backward()
    assert weight.grad.abs().max().item() < 1e-12


def test_under_no_grad_the_entropy_has_no_gradient_even_when_asked():
    hidden, weight, _, token_ids = make()
    with torch.no_grad():
        _, entropies = token_logprobs(
            hidden.requires_grad_(), weight, token_ids, temperature=1.0, entropy_gradient=True
        )
    assert not entropies.requires_grad


def test_bfloat16_logits_are_normalised_in_float32():
    hidden, weight, _, token_ids = make(dtype=torch.bfloat16)
    logprobs, entropies = token_logprobs(hidden, weight, token_ids, temperature=1.0)
    assert logprobs.dtype == entropies.dtype == torch.float32


def test_no_position_gives_nothing():
    hidden, weight, _, token_ids = make()
    logprobs, entropies = token_logprobs(hidden[:0], weight, token_ids[:0], temperature=1.0)
    assert logprobs.shape == entropies.shape == (0,)


def test_without_entropy_the_log_probs_keep_their_bits_and_the_entropies_are_no_number():
    for limit in (10**9, VOCAB):
        results = []
        for entropy in (True, False):
            hidden, weight, _, token_ids = make(dtype=torch.float32)
            logprobs, entropies = token_logprobs(
                hidden.requires_grad_(), weight, token_ids, temperature=0.7, entropy=entropy,
                max_logits=limit, min_chunk=3,
            )  # fmt: skip
            logprobs.sum().backward()
            assert entropies.isnan().all() == (not entropy)
            assert not entropies.requires_grad
            results.append((logprobs, hidden.grad))
        assert all(map(torch.equal, *results))


def test_under_autocast_chunks_are_as_the_whole_and_the_matrix_has_a_float32_gradient():
    result = []
    for limit in (10**9, 1):
        hidden, weight, bias, token_ids = make(dtype=torch.float32, tokens=64)
        inputs = [tensor.requires_grad_() for tensor in (hidden, weight, bias)]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logprobs, _ = token_logprobs(
                hidden, weight, token_ids, temperature=0.7, output_bias=bias, max_logits=limit,
                min_chunk=16,
            )  # fmt: skip
        (logprobs * torch.arange(64)).sum().backward()
        assert logprobs.dtype == weight.grad.dtype == torch.float32
        result.append([logprobs.detach(), *(tensor.grad for tensor in inputs)])
    assert torch.equal(result[0][0], result[1][0])
    for whole, chunked in zip(*result, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=0, atol=0.02 * whole.abs().max().item())


QWEN = {"vocab": 151_936, "hidden": 1536}
"""Of Qwen2.5-1.5B."""
WHOLE, ONE_CHUNK = {"max_logits": 10**12}, {"max_logits": 1, "min_chunk": 10**9}


def counted(counter, tokens, **numbers):
    """A forward and backward pass under autocast, on tensors without numbers."""
    with FakeTensorMode():
        hidden = torch.empty(tokens, QWEN["hidden"], dtype=torch.bfloat16, requires_grad=True)
        weight = torch.empty(QWEN["vocab"], QWEN["hidden"], requires_grad=True)
        token_ids = torch.zeros(tokens, dtype=torch.long)
        with counter() as count, torch.autocast("cpu", dtype=torch.bfloat16):
            result, _ = token_logprobs(hidden, weight, token_ids, temperature=1.0, **numbers)
            result.sum().backward()
    return count.peak if counter is LiveMemory else count.bytes


def test_at_a_large_vocabulary_the_peak_is_a_quarter_of_the_plain_ones():
    plain = counted(LiveMemory, 16_384, **WHOLE)
    assert counted(LiveMemory, 16_384) <= 0.25 * plain


def test_chunks_move_little_more_than_one_chunk_of_all_and_less_than_the_plain_way():
    result = counted(MovedBytes, 4096)
    assert result <= 1.2 * counted(MovedBytes, 4096, **ONE_CHUNK)
    assert result <= counted(MovedBytes, 4096, **WHOLE)


def test_what_is_not_asked_for_is_not_computed():
    without = counted(MovedBytes, 4096, entropy=False)
    assert without < 0.85 * counted(MovedBytes, 4096)
