"""Log-probabilities of chosen tokens, and the exact divergence over the whole vocabulary.

Without ever holding a logit for every position: only the positions that predict a counted token
reach the output layer, and those in chunks: the largest tensor is chunk x vocabulary, recomputed
in the backward pass. Everything is in float32. `hidden` h is the final hidden state at the position
*before* each token, `output` has the matrix W and, where the model has one, the bias b, and
`temperature` T divides the logits, as when sampling.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

Hidden = Float[Tensor, "token hidden"]
Tokens = Float[Tensor, " token"]

# 2^24 float32 logits are 64 MiB.
MAX_LOGITS = 2**24


class OutputLayer(NamedTuple):
    """What makes logits of hidden states."""

    weight: Float[Tensor, "vocab hidden"]
    bias: Float[Tensor, " vocab"] | None = None


def token_logprobs(
    hidden: Hidden,
    output: OutputLayer,
    token_ids: Int[Tensor, " token"],
    *,
    temperature: float,
    max_logits: int = MAX_LOGITS,
    entropy_gradient: bool = False,
) -> tuple[Tokens, Tokens]:
    """log p(token) and the entropy of p at each position.

        p = softmax((W h + b) / T),   entropy = - sum_v p_v log p_v

    Of `max_logits` held at once. The entropies have a gradient only with `entropy_gradient`, for a
    bonus in the loss: without it the backward pass keeps one tensor the size of a chunk's logits
    less.
    """

    def chunk(hidden: Tensor, token_ids: Tensor) -> tuple[Tensor, ...]:
        logprobs = _vocabulary_logprobs(hidden, output, temperature)
        with torch.set_grad_enabled(entropy_gradient):
            entropies = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs.gather(-1, token_ids[:, None]).squeeze(-1), entropies

    found = _in_chunks(chunk, (hidden, token_ids), max_logits // len(output.weight))
    return found[0], found[1]


def full_kl(
    hidden: Hidden,
    output: OutputLayer,
    ref_hidden: Float[Tensor, "token ref_hidden"],
    ref_output: OutputLayer,
    *,
    temperature: float,
    max_logits: int = MAX_LOGITS,
) -> Tokens:
    """KL(policy || reference) at each position.

        sum_v p_v (log p_v - log q_v),   p = softmax((W h + b) / T), q likewise

    Its mean over positions that the policy visits is what `kl.k1` and `kl.k3` estimate
    from one token, without their variance over that token. Its gradient is exact at each
    position; it leaves out, as the estimators do, that the policy also decides which
    positions are visited. The reference, perhaps of another width, gets no gradient.
    `max_logits` are held at once, both models' together.
    """

    def chunk(hidden: Tensor, ref_hidden: Tensor) -> tuple[Tensor, ...]:
        logprobs = _vocabulary_logprobs(hidden, output, temperature)
        with torch.no_grad():
            ref_logprobs = _vocabulary_logprobs(ref_hidden, ref_output, temperature)
        return ((logprobs.exp() * (logprobs - ref_logprobs)).sum(-1),)

    return _in_chunks(chunk, (hidden, ref_hidden), max_logits // (2 * len(output.weight)))[0]


def _vocabulary_logprobs(
    hidden: Hidden, output: OutputLayer, temperature: float
) -> Float[Tensor, "token vocab"]:
    """log softmax((W h + b) / T): only for as many positions as fit."""
    logits = linear(hidden, *output)
    # float64 stays as it is, for gradient checks; bfloat16 sums would lose the small terms.
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return (logits / temperature).log_softmax(-1)


def _in_chunks(
    function: Callable[..., tuple[Tensor, ...]], by_token: Sequence[Tensor], size: int
) -> tuple[Tensor, ...]:
    """`function` of so many tokens at a time, computed again in the backward pass."""
    num_tokens, size = len(by_token[0]), max(1, size)
    if num_tokens <= size:
        return function(*by_token)
    # torch's `checkpoint` is not annotated.
    parts: list[tuple[Tensor, ...]] = [
        checkpoint(function, *(one[start : start + size] for one in by_token), use_reentrant=False)
        for start in range(0, num_tokens, size)
    ]
    return tuple(torch.cat(part) for part in zip(*parts, strict=True))
