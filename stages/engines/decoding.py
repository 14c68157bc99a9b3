"""Decode steps of a batch of rows, and sampling of their next tokens.

On a GPU a step launches 1,600 kernels for a model of 1.5 B parameters, and the launches take four
times as long as the kernels. With fixed shapes (`Decoding.steps`) the step is recorded as a CUDA
graph at its second token, and replayed: a row attends to all positions of its storage, with a mask
of the filled ones, and a step changes tensors only in place. It never waits for the GPU. On a CPU
the same step is called directly.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from stages.engines.growing_cache import GrowingCache
from stages.models import policy, rope_limit

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class Decoding:
    """Rows that are decoded together. Axes: `row` all rows, `left` those still in the batch."""

    model: PreTrainedModel
    cache: GrowingCache
    """Keys and values of the rows in the batch."""
    width: int
    """Positions of the prompts, padding on the left included."""
    temperature: float
    uniforms: Float[Tensor, "row token"] | None
    """A number in [0, 1) for each draw; None: greedy."""
    ends: Int[Tensor, " end"]
    """Tokens that end a row."""
    limits: Int[Tensor, " row"]
    """Largest number of tokens of each row."""
    tokens: Int[Tensor, "row token"]
    logprobs: Float[Tensor, "row token"]
    """Sampled tokens and their log p; rows continue after their end."""
    attention: Int[Tensor, "left seq"]
    """1 at positions of prompts and completions, 0 at padding."""
    position: Int[Tensor, " left"]
    """Position of the token that is read next, not counting padding."""
    active: Int[Tensor, " left"]
    """Numbers of the rows in the batch."""
    stopped: Bool[Tensor, " left"] = field(init=False)
    """Whether a row has ended, and is still to be dropped."""
    number: Int[Tensor, " 1"] = field(init=False)
    """Number of sampled tokens per row; on the device, so that a graph can count."""
    _token: Int[Tensor, " left"] = field(init=False)
    """Last token of each row."""
    _last_position: Int[Tensor, " left"] = field(init=False)
    """Position of a row's last token at its limit; tokens after a row's end stay there, since the
    model may have no positions beyond."""

    def __post_init__(self) -> None:
        self.stopped = torch.zeros_like(self.active, dtype=torch.bool)
        self.number = self.active.new_zeros(1)
        self._token = torch.zeros_like(self.active)
        self._last_position = self.position + self.limits[self.active] - 1

    def draw(self, logits: Float[Tensor, "left vocab"]) -> None:
        """Draw the next token of each row."""
        uniform = None if self.uniforms is None else self.uniforms[self.active, self.number]
        token, logprob = sample_tokens(logits, self.temperature, uniform)
        self.tokens[self.active, self.number] = token
        self.logprobs[self.active, self.number] = logprob
        self._token.copy_(token)
        is_end = (token[:, None] == self.ends).any(1)
        self.stopped |= is_end | (self.limits[self.active] <= self.number + 1)
        self.number += 1

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Continue with only these rows of the batch."""
        self.cache.select(rows)
        self.attention, self.position = self.attention[rows], self.position[rows]
        self.active, self.stopped = self.active[rows], self.stopped[rows]
        self._token, self._last_position = self._token[rows], self._last_position[rows]

    def steps(self, *, fixed: bool) -> Iterator[None]:
        """Decode steps, until rows are selected: each reads the last tokens and samples the next.

        `fixed`: with the same shapes in each step; on a GPU, as a graph. The results are the same
        up to rounding, since sums have more zeros.
        """
        if not fixed:
            for end in range(self.width + int(self.number), self.attention.shape[1] + 1):
                self._step(self.attention[:, :end])
                yield
        # The column of the token that is read, and the mask of positions that it attends to.
        column = self.number + (self.width - 1)
        seen = self.attention.bool()[:, None, None]
        seen[..., self.cache.get_seq_length() :] = False
        self.cache.write_at(column)

        def step() -> None:
            seen.index_fill_(3, column, value=True)
            self._step(seen)
            column.add_(1)

        yield from repeat_as_graph(step, self.active.device)

    def _step(self, mask: Tensor) -> None:
        logits = self.model(
            input_ids=self._token[:, None],
            attention_mask=mask,
            position_ids=self.position[:, None],
            past_key_values=self.cache,
        ).logits[:, -1]
        self.position.add_(1).clamp_(max=self._last_position)
        self.draw(logits)


def repeat_as_graph(step: Callable[[], None], device: torch.device) -> Iterator[None]:
    """Iterator that calls `step`: on a GPU once directly, then as a CUDA graph.

    If it cannot be recorded, as with experts whose number of tokens the host must know, it is
    always called directly, with a warning: the same numbers, but slower.
    """
    step()
    yield
    run: Callable[[], None] = step
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                step()
            run = graph.replay
        except RuntimeError as error:
            logger.warning("sampling goes without a CUDA graph: %.200s", error)
    while True:
        run()
        yield


def can_have_fixed_shapes(model: PreTrainedModel) -> bool:
    """Whether all layers take a boolean mask, and rotary positions do not depend on length."""
    config = model.config.get_text_config(decoder=True)
    return policy.can_share_rows(model) and rope_limit.get_rope_limit(config) is None


def sample_tokens(
    logits: Float[Tensor, "batch vocab"],
    temperature: float,
    uniform: Float[Tensor, " batch"] | None,
) -> tuple[Int[Tensor, " batch"], Float[Tensor, " batch"]]:
    """A token of each row and its log p, by inverse transform sampling (temperature 0: greedy).

    The token is the first whose cumulative probability exceeds u; `uniform` is in [0, 1).
    So a token of probability 0 is never drawn.
    """
    logits = logits.float()
    if temperature == 0:
        token = logits.argmax(-1)
    else:
        assert uniform is not None
        logits = logits / temperature
        probabilities = logits.softmax(-1)
        # In deterministic mode torch refuses cumulative sums of floats on CUDA, since their order
        # is not fixed.
        cuda = probabilities.is_cuda
        cumulative = fixed_point_cumulative(probabilities) if cuda else probabilities.cumsum(-1)
        total = cumulative[:, -1:]
        # The total is 1 up to rounding: scaling u by it, and staying below it where the product
        # rounds up, keeps the draw inside the vocabulary.
        threshold = uniform[:, None].to(cumulative.dtype) * total
        threshold = torch.minimum(threshold, torch.nextafter(total, torch.zeros_like(total)))
        token = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
    token_logits = logits.gather(-1, token[:, None]).squeeze(-1)
    return token, token_logits - logits.logsumexp(-1)


def fixed_point_cumulative(
    probabilities: Float[Tensor, "batch vocab"],
) -> Float[Tensor, "batch vocab"]:
    """Cumulative sums in units of 2^-40, exact in any order and finer than float32, as float64."""
    return (probabilities * 2.0**40).long().cumsum(-1).double()
