"""The exact divergence from a reference at each position, over the whole vocabulary."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from stages.algorithms.logprobs import MAX_LOGITS, vocabulary_logprobs


def full_kl(
    hidden: Float[Tensor, "token hidden"],
    output_weight: Float[Tensor, "vocab hidden"],
    ref_hidden: Float[Tensor, "token ref_hidden"],
    ref_output_weight: Float[Tensor, "vocab ref_hidden"],
    *,
    temperature: float,
    output_bias: Float[Tensor, " vocab"] | None = None,
    ref_output_bias: Float[Tensor, " vocab"] | None = None,
    max_logits: int = MAX_LOGITS,
) -> Float[Tensor, " token"]:
    """KL(policy || reference) at each position, in float32.

        sum_v p_v (log p_v - log q_v),   p = softmax((W h + b) / T), q likewise

    Its mean over positions that the policy visits is what `kl.k1` and `kl.k3` estimate
    from one token, without their variance over that token. Its gradient is exact at each
    position; it leaves out, as the estimators do, that the policy also decides which
    positions are visited.

    Args:
        hidden: the policy's final hidden state at each position.
        output_weight: W, the policy's output embedding.
        ref_hidden, ref_output_weight: the reference's, perhaps of another width; the
            reference gets no gradient.
        temperature: T, for both.
        output_bias, ref_output_bias: b, where a model has one.
        max_logits: logits held at once, both models' together; more positions are done in
            chunks whose logits are computed again in the backward pass.
    """
    chunk = max(1, max_logits // (2 * output_weight.shape[0]))
    ref_hidden, ref_output_weight = ref_hidden.detach(), ref_output_weight.detach()
    ref_output_bias = None if ref_output_bias is None else ref_output_bias.detach()
    if len(hidden) <= chunk:
        return _chunk_kl(
            hidden, output_weight, output_bias,
            ref_hidden, ref_output_weight, ref_output_bias, temperature,
        )  # fmt: skip
    # torch's `checkpoint` is not annotated.
    parts: list[Tensor] = [
        checkpoint(
            _chunk_kl,
            hidden[start : start + chunk],
            output_weight,
            output_bias,
            ref_hidden[start : start + chunk],
            ref_output_weight,
            ref_output_bias,
            temperature,
            use_reentrant=False,
        )
        for start in range(0, len(hidden), chunk)
    ]
    return torch.cat(parts)


def _chunk_kl(
    hidden: Float[Tensor, "token hidden"],
    output_weight: Float[Tensor, "vocab hidden"],
    output_bias: Float[Tensor, " vocab"] | None,
    ref_hidden: Float[Tensor, "token ref_hidden"],
    ref_output_weight: Float[Tensor, "vocab ref_hidden"],
    ref_output_bias: Float[Tensor, " vocab"] | None,
    temperature: float,
) -> Float[Tensor, " token"]:
    logprobs = vocabulary_logprobs(hidden, output_weight, output_bias, temperature)
    ref_logprobs = vocabulary_logprobs(ref_hidden, ref_output_weight, ref_output_bias, temperature)
    return (logprobs.exp() * (logprobs - ref_logprobs)).sum(-1)
