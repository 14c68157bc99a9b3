"""Sampler on a transformers model, on any device: the default engine.

Each prompt is prefilled once, and its key/value cache is copied for its samples; finished rows are
removed from the batch. Token t of sample j is drawn by inverse transform sampling with the t-th
number of a Philox stream keyed by (request seed, j): so a completion does not depend on batching,
order or resume.

In a session, the keys and values of at most `max_batch` rows of the last call stay cached, for
prompts that continue them. A row that the next call does not continue is dropped.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import meter
from stages.algorithms.packing import token_budget_batches
from stages.engines import growing_cache
from stages.engines.decoding import Decoding, can_have_fixed_shapes
from stages.engines.growing_cache import GrowingCache
from stages.engines.prefix_cache import (
    CachedRow,
    PrefixTable,
    TokenIds,
    prefill_group,
    prefill_new_tokens,
)
from stages.models import rope_limit
from stages.models.batch import eval_no_grad, pad_left
from stages.models.compilation import uncompiled
from stages.models.model_tokenizer import end_ids, pad_id
from stages.sampler import Sample, check_requests, token_limits
from stages.seeding import derive_seed

COMPACT_SHARE = 0.25
"""Share of finished rows in a batch above which they are removed, at the cost of a cache copy."""


Request = tuple[Sequence[int], int, int]
"""Prompt, seed, and limit of new tokens."""
CachedRows = dict[TokenIds, CachedRow]


@dataclass(kw_only=True)
class TransformersSampler:
    """Sampler of `model` with its weights at the time of the call."""

    model: PreTrainedModel
    eos_ids: frozenset[int]
    """End-of-sequence and end-of-turn tokens: each of them ends a completion."""
    pad_id: int
    max_batch: int
    """Sequences decoded side by side."""
    max_tokens: int = 0
    """Padded tokens of a batch of `next_logprobs`, which has at least one prompt."""
    check_every: int = 1
    """Tokens between two checks for finished rows; a check makes a GPU wait."""
    has_fixed_shapes: bool = False
    """Whether a decode step has the same shapes at every token (`Decoding.steps`)."""
    _rows: CachedRows | None = field(default=None, init=False, repr=False)
    """Rows of a session's last call; None: outside of a session."""

    @contextmanager
    def session(self) -> Iterator[None]:
        """See `stages.sampler.SessionSampler.session`."""
        self._rows = {}
        try:
            yield
        finally:
            self._rows = None

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        *,
        num_samples: int,
        temperature: float,
        max_new_tokens: int | Sequence[int],
        break_after: frozenset[int] = frozenset(),
    ) -> list[list[Sample]]:
        """See `stages.sampler.Sampler.sample`; refuses more tokens than the model has positions."""
        limits = token_limits(max_new_tokens, prompts)
        positions = rope_limit.get_num_positions(self.model.config)
        check_requests(prompts, limits, positions, num_samples, temperature)
        cached = self._find_rows(prompts)
        # Longest first: an out-of-memory error comes at once, and batches pad little. Prompts that
        # continue cached rows come before all others, so that their rows stay cached.
        order = sorted(range(len(prompts)), key=lambda i: (i not in cached, -len(prompts[i]), i))
        per_batch = max(1, self.max_batch // num_samples)
        results: list[list[Sample]] = [[] for _ in prompts]
        with (
            eval_no_grad(self.model),
            uncompiled(),
            cast_weights_once(self.model.device.type),
        ):
            for start in range(0, len(order), per_batch):
                numbers = sorted(
                    order[start : start + per_batch],
                    key=lambda i: prefill_group(prompts[i], cached.get(i)),
                )
                requests = [(prompts[i], seeds[i], limits[i]) for i in numbers]
                rows = [cached.pop(i, None) for i in numbers]
                batch = self._decode(
                    requests, rows, not cached, num_samples, temperature, break_after
                )
                for i, samples in zip(numbers, batch, strict=True):
                    results[i] = samples
        return results

    def next_logprobs(
        self, prompts: Sequence[Sequence[int]], token_ids: Sequence[int]
    ) -> Iterator[tuple[int, list[float]]]:
        """See `stages.sampler.Engine.next_logprobs`; refuses what `sample` refuses."""
        positions = rope_limit.get_num_positions(self.model.config)
        check_requests(prompts, token_limits(0, prompts), positions)
        for numbers in token_budget_batches([*map(len, prompts)], self.max_tokens):
            inputs = pad_left([prompts[i] for i in numbers], self.pad_id, self.model.device)
            with eval_no_grad(self.model), uncompiled():
                logits = self.model(**inputs, use_cache=False, logits_to_keep=1).logits[:, -1]
            rows = logits.float().log_softmax(-1)[:, list(token_ids)].tolist()
            meter.COUNTS["messages"] += len(numbers)
            yield from zip(numbers, rows, strict=True)

    def close(self) -> None:
        """See `stages.sampler.Engine.close`: the caller holds the model."""

    def _find_rows(self, prompts: Sequence[Sequence[int]]) -> dict[int, CachedRow]:
        """Rows of the previous call that prompts continue, by number of the prompt."""
        if not self._rows:
            return {}
        table, self._rows = PrefixTable(self._rows), {}
        rows = ((i, table.find(prompt)) for i, prompt in enumerate(prompts))
        return {i: row for i, row in rows if row is not None}

    def _has_room(self, num_rows: int) -> bool:
        """Whether a batch's rows stay cached for the next call: at most `max_batch` rows in all.

        Those of a call's first batch stay, whatever its size.
        """
        if self._rows is None:
            return False
        caches = {id(row.cache): row.cache for row in self._rows.values()}
        num_stored = sum(cache.num_rows() for cache in caches.values())
        return num_stored == 0 or num_stored + num_rows <= self.max_batch

    def _store_rows(
        self,
        caches: Sequence[tuple[GrowingCache, Tensor]],
        prompts: Sequence[Sequence[int]],
        samples: Sequence[Sample],
        width: int,
    ) -> None:
        """Store rows by their tokens; `caches`: each with the numbers of the samples in its rows.

        `width`: the position after each prompt. A sample's last token is not in the cache.
        """
        assert self._rows is not None
        num_samples = len(samples) // len(prompts)
        for cache, numbers in caches:
            for row, number in enumerate(numbers.tolist()):
                prompt = prompts[number // num_samples]
                ids = (*prompt, *samples[number].token_ids[:-1])
                self._rows[ids] = CachedRow(cache, row, width - len(prompt), len(ids))

    def _decode(
        self,
        requests: Sequence[Request],
        rows: Sequence[CachedRow | None],
        is_last: bool,  # noqa: FBT001
        num_samples: int,
        temperature: float,
        break_after: frozenset[int],
    ) -> list[list[Sample]]:
        """Samples of prompts, decoded side by side.

        `rows`: cached rows that the prompts continue; only the tokens after them are prefilled.
        `is_last`: no later batch continues a row, so that the caches of `rows` may be freed.

        Finished rows are decoded on until there are enough of them (`COMPACT_SHARE`) to copy the
        cache without them; `_cut_samples` removes their further tokens.
        """
        prompts, seeds, limits = map(list, zip(*requests, strict=True))
        device, longest, num_rows = self.model.device, max(limits), len(prompts) * num_samples
        inputs = pad_left(prompts, self.pad_id, device)
        width = inputs["input_ids"].shape[1]
        if any(rows):
            cache, logits = prefill_new_tokens(
                self.model, inputs, prompts, rows, width + longest, release=is_last
            )
        else:
            config = self.model.config.get_text_config(decoder=True)
            cache = GrowingCache(config.num_hidden_layers, width + longest)
            logits = self.model(**inputs, past_key_values=cache, logits_to_keep=1).logits[:, -1]
        copies = torch.arange(len(prompts), device=device).repeat_interleave(num_samples)
        if num_samples > 1:
            cache.select(copies)
        attention = inputs["attention_mask"][copies]
        uniforms = _uniforms(seeds, num_samples, longest).to(device) if temperature > 0 else None
        row_limits = torch.tensor(limits, device=device).repeat_interleave(num_samples)
        ends = torch.tensor(sorted(self.eos_ids | break_after), dtype=torch.long, device=device)
        batch = Decoding(
            model=self.model, cache=cache, width=width, temperature=temperature, uniforms=uniforms,
            ends=ends, limits=row_limits,
            tokens=torch.zeros(num_rows, longest, dtype=torch.long, device=device),
            logprobs=torch.zeros(num_rows, longest, device=device),
            attention=torch.cat([attention, attention.new_ones(num_rows, longest)], dim=1),
            position=attention.sum(1), active=torch.arange(num_rows, device=device),
        )  # fmt: skip
        is_cached = self._has_room(num_rows)
        caches: list[tuple[GrowingCache, Tensor]] = []  # with the samples' numbers
        batch.draw(logits[copies])
        steps = batch.steps(fixed=self.has_fixed_shapes)
        for t in range(1, longest):
            if t % self.check_every == 0:
                num_left = int((~batch.stopped).sum())
                if num_left == 0:
                    break
                # Records a graph for each power of two, not for each number of rows.
                size = 1 << (num_left - 1).bit_length() if self.has_fixed_shapes else num_left
                num_dropped = len(batch.active) - size
                if num_dropped > COMPACT_SHARE * len(batch.active):
                    cache.fill(width + t - 1)
                    order = batch.stopped.int().argsort(stable=True)
                    if is_cached:
                        ended = order[size:].sort().values
                        caches.append((cache.copy_rows(ended), batch.active[ended]))
                    meter.COUNTS["completions"] += num_dropped
                    batch.select(order[:size].sort().values)
                    steps = batch.steps(fixed=self.has_fixed_shapes)
            next(steps)
        cache.fill(width + int(batch.number) - 1)
        meter.COUNTS["completions"] += len(batch.active)
        samples = _cut_samples(batch.tokens, batch.logprobs, row_limits, ends, self.eos_ids)
        if is_cached:
            self._store_rows([*caches, (cache, batch.active)], prompts, samples, width)
        return [samples[i : i + num_samples] for i in range(0, num_rows, num_samples)]


def _cut_samples(
    tokens: Int[Tensor, "row token"],
    logprobs: Float[Tensor, "row token"],
    limits: Int[Tensor, " row"],
    ends: Int[Tensor, " end"],
    eos_ids: frozenset[int],
) -> list[Sample]:
    """Samples: the tokens of each row up to the first one of `ends`, or to its limit."""
    within = torch.arange(tokens.shape[1], device=tokens.device) < limits[:, None]
    at_ends = (torch.isin(tokens, ends) & within).cpu().numpy()
    stopped = np.logical_or.reduce(at_ends, axis=1)
    lengths = np.where(stopped, at_ends.argmax(1) + 1, limits.cpu().numpy())
    samples, rows = [], zip(tokens.cpu().numpy(), logprobs.cpu().numpy(), strict=True)
    for (ids, row), length, is_stopped in zip(rows, lengths, stopped, strict=True):
        reason = "length" if not is_stopped else "stop" if ids[length - 1] in eos_ids else "step"
        token_ids, row_logprobs = ids[:length].tolist(), row[:length].tolist()
        samples.append(Sample(token_ids=token_ids, logprobs=row_logprobs, finish_reason=reason))
    return samples


def make_sampler(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_batch: int,
    max_tokens: int = 0,
) -> TransformersSampler:
    """Sampler of a model, whose current weights it always uses."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    eos = configured if isinstance(configured, list) else [configured]
    growing_cache.check_cache(model)
    is_gpu = model.device.type == "cuda"
    return TransformersSampler(
        model=model,
        eos_ids=end_ids(tokenizer) | {i for i in eos if isinstance(i, int)},
        pad_id=pad_id(tokenizer),
        max_batch=max_batch,
        max_tokens=max_tokens,
        check_every=16 if is_gpu else 1,
        has_fixed_shapes=is_gpu and can_have_fixed_shapes(model),
    )


@contextmanager
def cast_weights_once(device: str) -> Iterator[None]:
    """Context in which autocast casts a policy's float32 weights once, not at every token.

    For 128 rows of a model of 135 M parameters, casting takes half of a token's time. The weights
    must not change within the context.
    """
    if not torch.is_autocast_enabled(device):
        yield
        return
    try:
        with torch.autocast(device, torch.get_autocast_dtype(device), cache_enabled=True):
            yield
    finally:
        torch.clear_autocast_cache()  # an outer context would reuse casts after weights change


def _uniforms(seeds: list[int], num_samples: int, length: int) -> Float[Tensor, "batch {length}"]:
    """Random numbers in [0, 1): row i * num_samples + j is the stream (seeds[i], j)."""
    keys = [derive_seed(seed, j) for seed in seeds for j in range(num_samples)]
    rows = [np.random.Generator(np.random.Philox(key=key)).random(length) for key in keys]
    return torch.from_numpy(np.stack(rows))
