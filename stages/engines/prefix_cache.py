"""Prefix cache: keys and values of a sampler's last call, for prompts that continue its rows.

If a prompt begins with the tokens of a cached row, only the tokens after the row are prefilled.
Restored rows are left-padded like prompts, without holes, so that a sliding window or position bias
over columns is one over tokens.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product, takewhile
from operator import eq
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from stages.engines.growing_cache import GrowingCache

Value = TypeVar("Value")
TokenIds = tuple[int, ...]


class PrefixTable(Generic[Value]):
    """Mapping from token ids to values, looked up by the longest prefix of a sequence."""

    def __init__(self, entries: Mapping[TokenIds, Value]) -> None:
        self._prefixes = sorted(entries)
        self._entries = entries

    def find(self, token_ids: Sequence[int]) -> Value | None:
        """Value of the longest entry that is a prefix of `token_ids`; None: no entry is."""
        key = tuple(token_ids)
        while place := bisect_right(self._prefixes, key):
            # A prefix of `key` sorts before `key`, and every entry between them begins with it.
            nearest = self._prefixes[place - 1]
            common = sum(takewhile(bool, map(eq, nearest, key)))
            if common == len(nearest):
                return self._entries[nearest]
            key = key[:common]
        return None


@dataclass(frozen=True, slots=True, eq=False)
class CachedRow:
    """Keys and values of a row's first `length` tokens, in a row of a cache."""

    cache: GrowingCache
    row: int
    start: int
    """Position in the cache of the first token."""
    length: int

    def num_new(self, prompt: Sequence[int]) -> int:
        """Number of tokens to prefill for a prompt that begins with this row: at least one."""
        return max(1, len(prompt) - self.length)


def restore_rows(
    rows: Sequence[CachedRow | None],
    lengths: Sequence[int],
    ends: Sequence[int],
    capacity: int,
    *,
    release: bool,
) -> GrowingCache:
    """Cache of `capacity` positions, with the first `lengths` tokens of each row up to its end.

    `ends`: the position after a row's last token. Other positions hold tokens of the same row or
    zeros, since masked values must not be NaN. At least one row is not None. `release`: free the
    rows' caches layer by layer, so that two complete caches never coexist.

    Adjacent rows from the same cache are copied in one pass: all rows of an unchanged batch.
    """
    caches = list({id(row.cache): row.cache for row in rows if row}.values())
    # Adjacent rows from the same cache: slice of the restored rows, their cache (None: no tokens),
    # their rows in it, and the position of each token.
    runs: list[tuple[slice, GrowingCache | None, Tensor, Tensor]] = []
    start = 0
    for cache, group in groupby(rows, key=lambda row: row and row.cache):
        members = list(group)
        span = slice(start, start + len(members))
        start = span.stop
        places = [(row.row, row.start) if row else (0, 0) for row in members]
        numbers, starts = torch.tensor(places).T
        counts, stops = torch.tensor(lengths[span]), torch.tensor(ends[span])
        offsets = torch.arange(capacity) - (stops - counts)[:, None]
        offsets = offsets.clamp(min=0).minimum((counts - 1).clamp(min=0)[:, None])
        runs.append((span, cache, numbers, starts[:, None] + offsets))
    restored = GrowingCache(len(caches[0].layers), capacity)
    for number, layer in enumerate(restored.layers):
        keys, values = (
            states.new_empty(len(rows), states.shape[1], capacity, states.shape[3])
            for states in caches[0].layers[number].storage
        )
        layer.attach((keys, values), 0)
        for (span, cache, numbers, positions), place in product(runs, range(2)):
            target = layer.storage[place][span]
            if cache is None:
                target.zero_()
                continue
            source = cache.layers[number].storage[place]
            num_heads, num_positions, dim = source.shape[1:]
            heads = numbers[:, None] * num_heads + torch.arange(num_heads)
            index = (heads[:, :, None] * num_positions + positions[:, None]).flatten()
            torch.index_select(
                source.flatten(0, 2), 0, index.to(source.device), out=target.view(-1, dim)
            )
        if release:
            for cache in caches:
                cache.layers[number].release()
    return restored


def prefill_group(prompt: Sequence[int], row: CachedRow | None) -> int:
    """Number of a prompt's prefill group; prompts of a group are prefilled in one forward pass.

    0: no cached row; else the number of binary digits of `row.num_new(prompt)`, so that the numbers
    of new tokens in a group differ by less than a factor of two.
    """
    return row.num_new(prompt).bit_length() if row else 0


def prefill_new_tokens(
    model: PreTrainedModel,
    inputs: Mapping[str, Int[Tensor, "prompt seq"]],
    prompts: Sequence[Sequence[int]],
    rows: Sequence[CachedRow | None],
    capacity: int,
    *,
    release: bool,
) -> tuple[GrowingCache, Float[Tensor, "prompt vocab"]]:
    """Prefill prompts that continue cached rows: cache of `capacity` positions, and next logits.

    `rows`: the cached row of each prompt, or None; at least one is not None. The prompts are in
    order of `prefill_group`, and `inputs` are those of `pad_left`. The prompt with the most new
    tokens sets how many last tokens its group prefills, so that all cached parts of the group end
    in one column. `release`: see `restore_rows`.
    """
    width = inputs["input_ids"].shape[1]
    spans: list[tuple[slice, int, int]] = []  # prompts of a group, longest, tokens to read
    lengths: list[int] = []
    start = 0
    for _, group in groupby(zip(prompts, rows, strict=True), key=lambda pair: prefill_group(*pair)):
        members = list(group)
        num_new = max(row.num_new(prompt) if row else len(prompt) for prompt, row in members)
        longest = max(len(prompt) for prompt, _ in members)
        spans.append((slice(start, start + len(members)), longest, num_new))
        lengths += [max(0, len(prompt) - num_new) for prompt, _ in members]
        start += len(members)
    ends = [width - num_new for span, _, num_new in spans for _ in prompts[span]]
    cache = restore_rows(rows, lengths, ends, capacity, release=release)
    logits = []
    for span, longest, num_new in spans:
        output = model(
            input_ids=inputs["input_ids"][span, -num_new:],
            attention_mask=inputs["attention_mask"][span, -longest:],
            position_ids=inputs["position_ids"][span, -num_new:],
            past_key_values=cache.view_rows(span, width - longest, longest - num_new),
            logits_to_keep=1,
        )
        logits.append(output.logits[:, -1])
    cache.fill(width)
    return cache, torch.cat(logits)
