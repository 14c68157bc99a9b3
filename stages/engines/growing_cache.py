"""Key/value cache without copies: it grows into spare capacity and returns views of it.

transformers' DynamicCache concatenates at every token, which copies the whole cache each time:
quadratic memory traffic, and most of the decoding time of a small model.

The cache holds only keys and values: `check_cache` refuses models with other state, such as a
recurrent one, or without a cache.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from stages.models.batch import eval_no_grad, pad_left
from stages.models.compilation import uncompiled
from stages.models.forward_check import TOLERANCE, relative_gap

Storage = tuple[Float[Tensor, "batch head seq dim"], Float[Tensor, "batch head seq value"]]
"""Keys and values of a layer, with room for more positions than are filled."""


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer, as views of storage with `capacity` positions."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0
        self.column: Int[Tensor, " 1"] | None = None

    def update(  # type: ignore[override]
        self,
        key_states: Float[Tensor, "batch head new dim"],
        value_states: Float[Tensor, "batch head new value"],
        *_args: object,
        **_kwargs: object,
    ) -> tuple[Float[Tensor, "batch head seq dim"], Float[Tensor, "batch head seq value"]]:
        """Write the new positions in place; returns views of everything so far."""
        if not self.is_initialized:
            self.dtype, self.device = key_states.dtype, key_states.device
            if torch.is_autocast_enabled(self.device.type):
                # Rotated keys are in float32, and attention would cast them at every token.
                self.dtype = torch.get_autocast_dtype(self.device.type)
            self.storage = (self._make_room(key_states), self._make_room(value_states))
            self.is_initialized = True
        if self.column is not None:
            for states, new in zip(self.storage, (key_states, value_states), strict=True):
                states.index_copy_(2, self.column, new.to(states.dtype))
            return self.storage
        end = self.length + key_states.shape[2]
        assert end <= self.capacity, f"cache of {self.capacity} positions cannot hold {end}"
        keys, values = self.storage
        keys[:, :, self.length : end] = key_states
        values[:, :, self.length : end] = value_states
        self.fill(end)
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def select(self, rows: Int[Tensor, " row"]) -> None:
        """Select these rows of the batch, in this order; a row may occur more than once."""
        keys, values = self.storage
        self.storage = (
            keys.new_empty(len(rows), *keys.shape[1:]),
            values.new_empty(len(rows), *values.shape[1:]),
        )
        for new, old in zip(self.storage, (keys, values), strict=True):
            new[:, :, : self.length] = old[:, :, : self.length][rows]
        self.fill(self.length)

    def get_seq_length(self) -> int:
        """Positions filled so far."""
        return self.length

    def attach(self, storage: Storage, length: int) -> None:
        """Write from now on into this storage, of which `length` positions are filled."""
        self.storage, self.capacity = storage, storage[0].shape[2]
        self.dtype, self.device = storage[0].dtype, storage[0].device
        self.is_initialized = True
        self.fill(length)

    def fill(self, length: int) -> None:
        """Count this many positions as filled."""
        self.length = length
        self.keys, self.values = (states[:, :, :length] for states in self.storage)

    def release(self) -> None:
        """Free keys and values; the layer cannot be used afterwards."""
        del self.storage
        self.keys = self.values = None

    def _make_room(self, states: Float[Tensor, "batch head new dim"]) -> Tensor:
        return states.new_empty(*states.shape[:2], self.capacity, states.shape[3], dtype=self.dtype)


class GrowingCache(Cache):
    """Cache of `num_layers` growing layers."""

    layers: list[GrowingLayer]  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, num_layers: int, capacity: int) -> None:
        super().__init__(layers=[GrowingLayer(capacity) for _ in range(num_layers)])

    def select(self, rows: Int[Tensor, " row"]) -> None:
        """Select these rows of the batch in every layer."""
        for layer in self.layers:
            layer.select(rows)

    def num_rows(self) -> int:
        """Rows of the batch."""
        return self.layers[0].storage[0].shape[0]

    def copy_rows(self, rows: Int[Tensor, " row"]) -> "GrowingCache":
        """Copy of the filled positions of these rows, without room for more."""
        copied = GrowingCache(len(self.layers), 0)
        for new, old in zip(copied.layers, self.layers, strict=True):
            keys, values = (states[:, :, : old.length][rows] for states in old.storage)
            new.attach((keys, values), old.length)
        return copied

    def view_rows(self, rows: slice, start: int, length: int) -> "GrowingCache":
        """Cache that writes into these rows of this one, from position `start` on.

        `length` of its positions are filled.
        """
        view = GrowingCache(len(self.layers), 0)
        for new, old in zip(view.layers, self.layers, strict=True):
            keys, values = (states[rows, :, start:] for states in old.storage)
            new.attach((keys, values), length)
        return view

    def write_at(self, column: Int[Tensor, " 1"]) -> None:
        """From now on write at `column`, which may change, and return all positions.

        Positions that are not filled are set to 0: a mask removes numbers, but not NaN.
        """
        for layer in self.layers:
            layer.column = column
            for states in layer.storage:
                states[:, :, layer.length :] = 0

    def fill(self, length: int) -> None:
        """Count this many positions as filled, in every layer."""
        for layer in self.layers:
            layer.fill(length)


BFLOAT16_TOLERANCE = 0.1
"""`TOLERANCE` for weights in bfloat16, which has 8 bits."""


def check_cache(model: PreTrainedModel) -> None:
    """Raise a ValueError if logits after this cache differ from those of a whole row."""
    try:
        with eval_no_grad(model), uncompiled(), torch.autocast(model.device.type, enabled=False):
            gap = _cache_gap(model)
        tolerance = TOLERANCE if model.dtype == torch.float32 else BFLOAT16_TOLERANCE
        problem = f"logits {gap:.1%} apart" if gap > tolerance else ""
    except Exception as error:  # noqa: BLE001 - whatever an architecture stumbles over
        problem = repr(error)
    if problem:
        raise ValueError(
            f"{type(model).__name__}: expected a model that can continue from a cache of keys "
            f"and values as it reads whole rows, found {problem}. Sample with vLLM (engine: vllm "
            f"in params.yaml), or use a model of another architecture, such as Llama or Qwen."
        )


def _cache_gap(model: PreTrainedModel) -> float:
    """`relative_gap` between logits of a prompt's next tokens after the cache and in a whole row.

    The prompt is padded, and in the cache its row is selected twice. One token is read, as in
    decoding, and then two, as when a conversation continues.
    """
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    inputs = pad_left([[2, 3, 4], [5]], 0, model.device)
    cache = GrowingCache(layers, 6)
    model(**inputs, past_key_values=cache, logits_to_keep=1)
    rows, tokens = torch.tensor([[1, 0, 1], [6, 7, 1]], device=model.device)
    cache.select(rows)
    attention = inputs["attention_mask"][rows]
    position = attention.sum(1)[:, None]
    single = model(
        input_ids=tokens[:, None],
        attention_mask=torch.cat([attention, torch.ones_like(position)], dim=1),
        position_ids=position,
        past_key_values=cache,
    ).logits[-1:]
    pair = model(
        input_ids=tokens[:, None].repeat(1, 2),
        attention_mask=torch.cat([attention, torch.ones_like(attention)], dim=1),
        position_ids=position + torch.arange(1, 3, device=model.device),
        past_key_values=cache,
    ).logits[-1:]
    whole = torch.tensor([[5, 1, 1, 1]], device=model.device)
    expected = model(input_ids=whole, use_cache=False).logits[:, 1:]
    return relative_gap(torch.cat([single, pair], dim=1)[0], expected[0])
