import math

import pytest
import torch
from largest_tensor import LargestTensor

from stages.algorithms.full_kl import full_kl

VOCAB, HIDDEN, REF_HIDDEN, TOKENS = 5, 4, 3, 10
NAMES = ("hidden", "output_weight", "output_bias")
REF_NAMES = ("ref_hidden", "ref_output_weight", "ref_output_bias")


def make(dtype=torch.float64, tokens=TOKENS):
    generator = torch.Generator().manual_seed(0)

    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    return {
        "hidden": randn(tokens, HIDDEN),
        "output_weight": randn(VOCAB, HIDDEN),
        "output_bias": randn(VOCAB),
        "ref_hidden": randn(tokens, REF_HIDDEN),
        "ref_output_weight": randn(VOCAB, REF_HIDDEN),
        "ref_output_bias": randn(VOCAB),
    }


def of_logits(logits, ref_logits, temperature=1.0):
    """The hidden states are the logits: the output matrices are the identity."""
    identity = torch.eye(logits.shape[1], dtype=logits.dtype)
    return full_kl(logits, identity, ref_logits, identity, temperature=temperature)


def test_hand_worked_numbers():
    # p = (3/4, 1/4), q = (1/2, 1/2): 3/4 ln 3/2 + 1/4 ln 1/2.
    logits = torch.tensor([[math.log(3.0), 0.0]], dtype=torch.float64)
    flat = torch.zeros_like(logits)
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert of_logits(logits, flat).item() == pytest.approx(expected)
    # At temperature 2 twice the logits give the same p.
    assert of_logits(2 * logits, flat, temperature=2.0).item() == pytest.approx(expected)


def test_it_is_torchs_divergence_biases_included():
    inputs = make()
    logprobs, ref_logprobs = (
        ((inputs[hidden] @ inputs[weight].T + inputs[bias]) / 0.7).log_softmax(-1)
        for hidden, weight, bias in (NAMES, REF_NAMES)
    )
    expected = torch.nn.functional.kl_div(
        ref_logprobs, logprobs, log_target=True, reduction="none"
    ).sum(-1)
    torch.testing.assert_close(full_kl(**inputs, temperature=0.7), expected)
    assert (expected > 0).all()


def test_a_policy_diverges_from_itself_by_exactly_zero():
    logits = torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(0))
    assert of_logits(logits, logits).tolist() == [0.0] * 6


def test_its_gradient_is_that_of_the_divergence():
    logits = torch.tensor([[-1.0, 0.5, 2.0, -0.3, 0.0]], dtype=torch.float64)
    reference = torch.tensor([[0.7, -0.5, 1.0, 0.2, 0.4]], dtype=torch.float64)
    inputs = logits.clone().requires_grad_()
    of_logits(inputs, reference).sum().backward()
    # d KL / d logit_v = p_v (log p_v - log q_v - KL)
    p = logits.softmax(-1)
    log_ratio = p.log() - reference.softmax(-1).log()
    torch.testing.assert_close(inputs.grad, p * (log_ratio - (p * log_ratio).sum()))


@pytest.mark.parametrize("max_logits", [10**9, 4 * VOCAB])
def test_gradients_are_those_of_finite_differences(max_logits):
    inputs = make(tokens=4)
    fixed = {name: inputs[name] for name in REF_NAMES}

    def function(*values):
        policy = dict(zip(NAMES, values, strict=True))
        return full_kl(**policy, **fixed, temperature=0.7, max_logits=max_logits)

    assert torch.autograd.gradcheck(function, tuple(inputs[n].requires_grad_() for n in NAMES))


@pytest.mark.parametrize("max_logits", [1, 2 * VOCAB, 6 * VOCAB, 100 * VOCAB])
def test_chunks_change_neither_values_nor_gradients(max_logits):
    results = []
    for limit in (10**9, max_logits):
        inputs = {name: tensor.requires_grad_() for name, tensor in make().items()}
        found = full_kl(**inputs, temperature=0.7, max_logits=limit)
        (found * torch.arange(TOKENS)).sum().backward()
        results.append([found.detach(), *(inputs[name].grad for name in NAMES)])
        assert all(inputs[name].grad is None for name in REF_NAMES)
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=1e-12, atol=1e-12)


def test_no_tensor_is_larger_than_half_the_limit_forward_or_backward():
    hidden, weight = torch.randn(50, 4, requires_grad=True), torch.randn(100, 4)
    with LargestTensor() as largest:
        found = full_kl(hidden, weight, hidden, weight, temperature=1.0, max_logits=1000)
        found.sum().backward()
    # 5 positions of 100 logits for each of the two models; the matrix is 100 x 4.
    assert largest.elements == 500


def test_bfloat16_logits_are_normalised_in_float32():
    assert full_kl(**make(dtype=torch.bfloat16), temperature=1.0).dtype == torch.float32


def test_logits_far_apart_give_a_number_and_a_finite_gradient():
    logits = torch.tensor([[2000.0, 0.0], [0.0, 0.0]], requires_grad=True)
    found = of_logits(logits, torch.tensor([[0.0, 2000.0], [0.0, 2000.0]]))
    found.sum().backward()
    # All on token 0, that the reference gives exp(-2000); half of it: 1000 - ln 2.
    assert found.tolist() == pytest.approx([2000.0, 1000.0 - math.log(2)])
    assert logits.grad.isfinite().all()


def test_no_position_gives_nothing():
    assert full_kl(**make(tokens=0), temperature=1.0).shape == (0,)
