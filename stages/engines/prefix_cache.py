"""Prefix cache: keys and values of a sampler's last call, for prompts that continue its rows.

Of a prompt that begins with the tokens of a cached row, only the tokens after the row are
prefilled. Restored rows are left-padded like prompts, so a row has no holes: a sliding window or a
position bias that counts columns counts tokens of the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from stages.engines.growing_cache import GrowingCache

Value = TypeVar("Value")
TokenIds = tuple[int, ...]


def find_prefix(entries: Mapping[TokenIds, Value], token_ids: Sequence[int]) -> Value | None:
    """Value of the longest entry that `token_ids` begins with; None: there is none."""
    key = tuple(token_ids)
    lengths = sorted({len(entry) for entry in entries if len(entry) <= len(key)}, reverse=True)
    prefixes = (key[:length] for length in lengths)
    return next((entries[prefix] for prefix in prefixes if prefix in entries), None)


@dataclass(frozen=True, slots=True, eq=False)
class CachedRow:
    """Keys and values of a row's first `length` tokens, in a row of a cache."""

    cache: GrowingCache
    row: int
    start: int
    """Position in the cache of the first token."""
    length: int


def continue_rows(
    model: PreTrainedModel,
    inputs: Mapping[str, Int[Tensor, "prompt seq"]],
    prompts: Sequence[Sequence[int]],
    rows: Sequence[CachedRow],
    capacity: int,
) -> tuple[GrowingCache, Float[Tensor, "prompt vocab"]]:
    """Prefill prompts that continue cached rows: cache of `capacity` positions, and next logits.

    `inputs` are those of `pad_left`. Every prompt prefills as many of its last tokens as the one
    with most new tokens, at least its last one, so that all cached parts end in one column. What
    stands before them is 0, since what attention masks out has to be a number.
    """
    num_new = max(
        max(1, len(prompt) - row.length) for prompt, row in zip(prompts, rows, strict=True)
    )
    end = inputs["input_ids"].shape[1] - num_new
    cache = GrowingCache(len(rows[0].cache.layers), capacity)
    for number, layer in enumerate(cache.layers):
        shapes = [states.shape[1:] for states in rows[0].cache.layers[number].storage]
        like = rows[0].cache.layers[number].storage[0]
        keys, values = (
            like.new_zeros(len(rows), num_heads, capacity, dim) for num_heads, _, dim in shapes
        )
        for i, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
            size = max(0, len(prompt) - num_new)
            sources = row.cache.layers[number].storage
            for target, source in zip((keys, values), sources, strict=True):
                target[i, :, end - size : end] = source[row.row, :, row.start : row.start + size]
        layer.attach((keys, values), end)
    output = model(
        input_ids=inputs["input_ids"][:, -num_new:],
        attention_mask=inputs["attention_mask"],
        position_ids=inputs["position_ids"][:, -num_new:],
        past_key_values=cache,
        logits_to_keep=1,
    )
    return cache, output.logits[:, -1]
