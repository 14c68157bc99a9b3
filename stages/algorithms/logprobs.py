"""Log-probabilities of chosen tokens, without all logits in memory at once.

Only the positions that predict a counted token reach the output layer. If their logits exceed a
limit, they are computed in chunks of tokens, and again in the backward pass, by an autograd
function that casts the output matrix once and sums its gradient in one float32 buffer; so the
largest tensor is chunk x vocabulary. Log-probabilities are in float32. `hidden` h is the final
hidden state at the position *before* each token, `output` has the matrix W and, where the model
has one, the bias b, and `temperature` T divides the logits, as when sampling.

Departure: torch's own `linear_cross_entropy` rounds the log-probabilities and the matrix's gradient
to the dtype of the hidden states in chunks (bfloat16: 8 bits), and has no temperature or entropy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import linear

Hidden = Float[Tensor, "token hidden"]
Tokens = Float[Tensor, " token"]


class OutputLayer(NamedTuple):
    """Weight and bias of the layer from hidden states to logits."""

    weight: Float[Tensor, "vocab hidden"]
    bias: Float[Tensor, " vocab"] | None = None


class ChunkLimits(NamedTuple):
    """Limits of the tensors of `token_logprobs`."""

    max_logits: int = 2**24
    """Most logits in memory at once: 64 MiB in float32."""
    min_tokens: int = 2048
    """Fewest tokens in a chunk, whatever `max_logits`: in smaller chunks the output matrix is read
    and its gradient summed too often."""


LIMITS = ChunkLimits()


def token_logprobs(
    hidden: Hidden,
    output: OutputLayer,
    token_ids: Int[Tensor, " token"],
    *,
    temperature: float,
    entropy: bool = True,
    entropy_gradient: bool = False,
    limits: ChunkLimits = LIMITS,
) -> tuple[Tokens, Tokens]:
    """log p(token) and the entropy of p at each position.

        p = softmax((W h + b) / T),   entropy = - sum_v p_v log p_v

    Without `entropy` the entropies are NaN. They have a gradient only with `entropy_gradient`, for
    an entropy bonus in the loss. More logits than `limits` allow are computed in chunks of tokens.
    """

    def value(logprobs: Tensor, token_ids: Tensor) -> tuple[Tensor, ...]:
        chosen = logprobs.gather(-1, token_ids[:, None]).squeeze(-1)
        if not entropy:
            return chosen, torch.full_like(chosen, torch.nan, requires_grad=False)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            p = logprobs.exp()
            return chosen, -(p * logprobs if p.requires_grad else p.mul_(logprobs)).sum(-1)

    def backward(
        logprobs: Tensor, token_ids: Tensor, grad_chosen: Tensor, grad_entropy: Tensor
    ) -> Tensor:
        # With z = (W h + b) / T:
        # d log p_t / d z_v = [v = t] - p_v;   d entropy / d z_v = - p_v (log p_v + entropy)
        weight = -grad_chosen[:, None]
        if entropy_gradient:
            mean = (logprobs.exp() * logprobs).sum(-1, keepdim=True)  # - entropy
            weight = weight - grad_entropy[:, None] * (logprobs - mean)
        gradient = logprobs.exp_().mul_(weight)
        return gradient.scatter_add_(-1, token_ids[:, None], grad_chosen[:, None])

    term = Term(value, backward, temperature, 1 + (entropy and entropy_gradient))
    values = evaluate_term(term, hidden, output, token_ids, limits)
    return values[0], values[1]


def evaluate_term(
    term: "Term", hidden: Hidden, output: OutputLayer, inputs: Tensor, limits: ChunkLimits
) -> tuple[Tensor, ...]:
    """Values of a term at each token, in chunks of tokens if there are too many logits.

    `inputs`: further inputs of the term, a row for each token; without a gradient.
    """
    size = max(limits.min_tokens, limits.max_logits // len(output.weight))
    if len(hidden) * len(output.weight) <= limits.max_logits:
        return term.value(vocabulary_logprobs(hidden, output, term.temperature), inputs)
    # torch's `apply` is not annotated.
    return _Chunked.apply(term, size, hidden, *output, inputs)  # pyright: ignore


def vocabulary_logprobs(
    hidden: Hidden, output: OutputLayer, temperature: float
) -> Float[Tensor, "token vocab"]:
    """log softmax((W h + b) / T) over the vocabulary, of all positions at once."""
    logits = linear(hidden, *output)
    # float64 is kept for gradient checks; bfloat16 sums would lose small terms.
    dtype = torch.promote_types(logits.dtype, torch.float32)
    if temperature != 1:
        logits = logits.to(dtype).div_(temperature)
    return logits.log_softmax(-1, dtype=dtype)


def cast_layer(output: OutputLayer, hidden: Tensor) -> OutputLayer:
    """The output layer in the dtype that `linear` uses with these hidden states."""
    kind, dtype = hidden.device.type, hidden.dtype
    if torch.is_autocast_enabled(kind) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(kind)
    weight, bias = (part if part is None else part.detach().to(dtype) for part in output)
    assert weight is not None
    return OutputLayer(weight, bias)


class Term(NamedTuple):
    """Differentiable function of each token's log-probabilities over the vocabulary."""

    value: Callable[..., tuple[Tensor, ...]]
    """Values, from log p [token, vocab] and the inputs of these tokens."""
    backward: Callable[..., Tensor]
    """Gradient with respect to z = (W h + b) / T, from the arguments of `value` and the gradients
    of the values; it may overwrite log p."""
    temperature: float
    num_differentiable: int
    """Number of values that have a gradient; they come first."""


def _slices(hidden: Hidden, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, len(hidden), size)]


class _Chunked(torch.autograd.Function):
    """A term, evaluated and differentiated for `size` tokens at a time."""

    @staticmethod
    def forward(
        ctx: Any, term: Term, size: int, hidden: Tensor, weight: Tensor, bias: Tensor | None,
        inputs: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        output = cast_layer(OutputLayer(weight, bias), hidden)
        ctx.term, ctx.size = term, size
        ctx.save_for_backward(hidden, *output, inputs)
        with torch.autocast(hidden.device.type, enabled=False):
            states = hidden.to(output.weight.dtype)
            parts = [
                term.value(
                    vocabulary_logprobs(states[part], output, term.temperature), inputs[part]
                )
                for part in _slices(hidden, size)
            ]
        values = tuple(torch.cat(part) for part in zip(*parts, strict=True))
        ctx.mark_non_differentiable(*values[term.num_differentiable :])
        return values

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        hidden, weight, bias, inputs = ctx.saved_tensors
        term, needs_weight, needs_bias = ctx.term, ctx.needs_input_grad[3], ctx.needs_input_grad[4]
        dtype = torch.promote_types(weight.dtype, torch.float32)
        grad_weight = torch.zeros_like(weight, dtype=dtype) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=dtype) if needs_bias else None
        grad_hidden = torch.empty_like(hidden)

        def add(part: slice) -> None:
            h = hidden[part].to(weight.dtype)
            logprobs = vocabulary_logprobs(h, OutputLayer(weight, bias), term.temperature)
            scaled = (gradient[part] / term.temperature for gradient in gradients)
            grad_logits = term.backward(logprobs, inputs[part], *scaled).to(weight.dtype)
            del logprobs
            grad_hidden[part] = grad_logits @ weight
            if grad_weight is not None:
                grad_weight.add_(grad_logits.T @ h)
            if grad_bias is not None:
                grad_bias.add_(grad_logits.sum(0))

        with torch.autocast(hidden.device.type, enabled=False):
            for part in _slices(hidden, ctx.size):
                add(part)
        return None, None, grad_hidden, grad_weight, grad_bias, None
