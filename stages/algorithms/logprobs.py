"""Log-probabilities of chosen tokens, and the exact divergence over the whole vocabulary.

Without ever holding a logit for every position: only the positions that predict a counted token
reach the output matrix, and those in chunks: the largest tensor is chunk x vocabulary, recomputed
in the backward pass.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

# 2^24 float32 logits are 64 MiB.
MAX_LOGITS = 2**24


def token_logprobs(
    hidden: Float[Tensor, "token hidden"],
    output_weight: Float[Tensor, "vocab hidden"],
    token_ids: Int[Tensor, " token"],
    *,
    temperature: float,
    output_bias: Float[Tensor, " vocab"] | None = None,
    max_logits: int = MAX_LOGITS,
    entropy_gradient: bool = False,
) -> tuple[Float[Tensor, " token"], Float[Tensor, " token"]]:
    """log p(token) and the entropy of p at each position, in float32.

        p = softmax((W h + b) / T),   entropy = - sum_v p_v log p_v

    Args:
        hidden: final hidden state at the position *before* each token.
        output_weight: W, the output embedding.
        token_ids: the tokens whose log-probability is wanted.
        temperature: T; the logits are divided by it, as when sampling.
        output_bias: b, where the model has one.
        max_logits: logits held at once; more positions are done in chunks whose
            logits are computed again in the backward pass.
        entropy_gradient: for an entropy bonus in the loss. Without it the backward pass
            keeps one tensor the size of a chunk's logits less.

    Returns:
        log-probabilities, with gradient; entropies, with it only when asked.
    """
    chunk = max(1, max_logits // output_weight.shape[0])
    if len(hidden) <= chunk:
        return _chunk_logprobs(
            hidden, output_weight, token_ids, temperature, output_bias, entropy_gradient
        )
    # torch's `checkpoint` is not annotated.
    parts: list[tuple[Tensor, Tensor]] = [
        checkpoint(
            _chunk_logprobs,
            hidden[start : start + chunk],
            output_weight,
            token_ids[start : start + chunk],
            temperature,
            output_bias,
            entropy_gradient,
            use_reentrant=False,
        )
        for start in range(0, len(hidden), chunk)
    ]
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def vocabulary_logprobs(
    hidden: Float[Tensor, "token hidden"],
    output_weight: Float[Tensor, "vocab hidden"],
    output_bias: Float[Tensor, " vocab"] | None,
    temperature: float,
) -> Float[Tensor, "token vocab"]:
    """log softmax((W h + b) / T), in float32: only for as many positions as fit."""
    logits = linear(hidden, output_weight, output_bias)
    # float64 stays as it is, for gradient checks; bfloat16 sums would lose the small terms.
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return (logits / temperature).log_softmax(-1)


def _chunk_logprobs(
    hidden: Float[Tensor, "token hidden"],
    output_weight: Float[Tensor, "vocab hidden"],
    token_ids: Int[Tensor, " token"],
    temperature: float,
    output_bias: Float[Tensor, " vocab"] | None,
    entropy_gradient: bool,  # noqa: FBT001 - `checkpoint` passes arguments by position
) -> tuple[Float[Tensor, " token"], Float[Tensor, " token"]]:
    logprobs = vocabulary_logprobs(hidden, output_weight, output_bias, temperature)
    with torch.set_grad_enabled(entropy_gradient):
        entropies = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(-1, token_ids[:, None]).squeeze(-1), entropies


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
