"""Decode steps of a batch of rows, and the draw of their next tokens.

On a GPU a step starts 1,600 kernels for a model of 1.5 B parameters, and their start takes four
times as long as they do. With fixed shapes (`Decoding.steps`) the step is recorded as a CUDA graph
at its second token, and replayed: a row attends to all positions of its storage, of which a mask
shows those that are filled, and all that a step changes is changed in place. Nothing in it waits
for the GPU. On a CPU the same step is called instead.
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
    """Rows that are decoded side by side. Axes: `row` all of them, `left` those in the batch."""

    model: PreTrainedModel
    cache: GrowingCache
    """Keys and values of the rows that are left."""
    width: int
    """Positions of the prompts, padding on the left included."""
    temperature: float
    uniforms: Float[Tensor, "row token"] | None
    """A number in [0, 1) for each draw; None: greedy."""
    ends: Int[Tensor, " end"]
    """Tokens that end a row."""
    limits: Int[Tensor, " row"]
    """Most tokens of each row."""
    tokens: Int[Tensor, "row token"]
    logprobs: Float[Tensor, "row token"]
    """What was drawn, and its log p; rows go on after their end."""
    attention: Int[Tensor, "left seq"]
    """1 where a position is no padding, of prompts and completions."""
    position: Int[Tensor, " left"]
    """Of the token that is read next, padding aside."""
    active: Int[Tensor, " left"]
    """Numbers of the rows that are left."""
    stopped: Bool[Tensor, " left"] = field(init=False)
    """Whether a row has ended, and waits to be dropped."""
    number: Int[Tensor, " 1"] = field(init=False)
    """Tokens of each row that were drawn; on the device, so that a graph can count."""
    _token: Int[Tensor, " left"] = field(init=False)
    """The last one of each row."""

    def __post_init__(self) -> None:
        self.stopped = torch.zeros_like(self.active, dtype=torch.bool)
        self.number = self.active.new_zeros(1)
        self._token = torch.zeros_like(self.active)

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
        """Go on with these of the rows that are left."""
        self.cache.select(rows)
        self.attention, self.position = self.attention[rows], self.position[rows]
        self.active, self.stopped = self.active[rows], self.stopped[rows]
        self._token = self._token[rows]

    def steps(self, *, fixed: bool) -> Iterator[None]:
        """Read the last tokens and draw the next, at each item, until rows are selected.

        `fixed`: with the same shapes at each; on a GPU, a graph. The numbers are the same up to
        the rounding of sums that have more zeros.
        """
        if not fixed:
            for end in range(self.width + int(self.number), self.attention.shape[1] + 1):
                self._step(self.attention[:, :end])
                yield
        # The column of a token that is read, and what may be attended to then.
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
        self.position += 1
        self.draw(logits)


def repeat_as_graph(step: Callable[[], None], device: torch.device) -> Iterator[None]:
    """Call `step` at each item: on a GPU once as it is, then as a CUDA graph of it.

    Where it cannot be recorded, as with experts whose number of tokens the host has to know, it is
    called as it is, with a warning: the same numbers, later.
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
    """Whether a boolean mask shows every layer what is filled, and no length changes rotation."""
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
        # On CUDA torch refuses to sum floats cumulatively in deterministic mode, since their order
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
