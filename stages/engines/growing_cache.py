"""A key/value cache that is never copied: it grows into spare room, and is read as it is.

transformers' DynamicCache concatenates at every token, which copies the whole cache each time:
quadratic memory traffic, and most of the time of decoding a small model. Its `sdpa` repeats keys
and values that heads share (Ainslie et al. 2023, "GQA", https://arxiv.org/abs/2305.13245) for each
head, at every layer and token: with 6 heads a group, 13 times the bytes. `attend` does not.

The cache holds keys and values alone: layers with a recurrent state, or that cannot go on at all,
are found out by `check`.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from stages.models.batch import frozen, left_padded
from stages.models.own_logits import TOLERANCE, apart


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer, as views of storage with `capacity` positions."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

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
                # As attention would cast them, at every token: rotated keys are in float32.
                self.dtype = torch.get_autocast_dtype(self.device.type)
            self._keys, self._values = (
                one.new_empty(*one.shape[:2], self.capacity, one.shape[3], dtype=self.dtype)
                for one in (key_states, value_states)
            )
            self.is_initialized = True
        end = self.length + key_states.shape[2]
        assert end <= self.capacity, f"cache of {self.capacity} positions asked to hold {end}"
        self._keys[:, :, self.length : end] = key_states
        self._values[:, :, self.length : end] = value_states
        self.length = end
        self._view()
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep these rows of the batch, in this order; a row may be named more than once."""
        keys, values = self._keys, self._values
        self._keys = keys.new_empty(len(rows), *keys.shape[1:])
        self._values = values.new_empty(len(rows), *values.shape[1:])
        self._keys[:, :, : self.length] = keys[:, :, : self.length][rows]
        self._values[:, :, : self.length] = values[:, :, : self.length][rows]
        self._view()

    def get_seq_length(self) -> int:
        """Positions filled so far."""
        return self.length

    def _view(self) -> None:
        self.keys = self._keys[:, :, : self.length]
        self.values = self._values[:, :, : self.length]


class GrowingCache(Cache):
    """A cache of `num_layers` growing layers."""

    def __init__(self, num_layers: int, capacity: int) -> None:
        super().__init__(layers=[GrowingLayer(capacity) for _ in range(num_layers)])

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep these rows of the batch in every layer."""
        for layer in self.layers:
            assert isinstance(layer, GrowingLayer)
            layer.select(rows)


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **other: Any
) -> tuple[Tensor, None]:
    """`sdpa` but for one new token: [batch, head, 1, dim] over [batch, group, seq, dim].

    It has no order to keep, so the heads of a group are asked as if they were tokens of one head.
    """
    one = query.shape[2] == 1 and (attention_mask is None or attention_mask.shape[1] == 1)
    if not one or key.shape[1] == query.shape[1] or other.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **other)  # pyright: ignore[reportReturnType]
    heads = query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])
    found = scaled_dot_product_attention(
        heads, key, value, attention_mask, other.get("dropout", 0.0), scale=other.get("scaling")
    )
    return found.reshape(query.shape[0], 1, query.shape[1], -1), None


def share_keys(model: PreTrainedModel) -> None:
    """Have the model `attend` so, wherever it reads; its results change by rounding alone.

    Nothing where its architecture brings attention of its own.
    """
    if model.config._attn_implementation == "sdpa" and model._can_set_attn_implementation():
        model.set_attn_implementation(GROUPED)


GROUPED = "sdpa_grouped"
"""`attend` as an `attn_implementation`."""
AttentionInterface.register(GROUPED, attend)  # pyright: ignore[reportArgumentType]
AttentionMaskInterface.register(GROUPED, sdpa_mask)


def check(model: PreTrainedModel) -> None:
    """Refuse a model that goes on from this cache otherwise than it reads whole rows."""
    try:
        with frozen(model), torch.autocast(model.device.type, enabled=False):
            gap = _gap(model)
        found = f"logits {gap:.1%} apart" if gap > TOLERANCE else ""
    except Exception as error:  # noqa: BLE001 - whatever an architecture stumbles over
        found = repr(error)
    if found:
        raise ValueError(
            f"{type(model).__name__}: expected a model that goes on from a cache of keys and "
            f"values as it reads whole rows, found {found}. Sample with vLLM (engine: vllm in "
            f"params.yaml), or use a model of another architecture, such as Llama or Qwen."
        )


def _gap(model: PreTrainedModel) -> float:
    """Between the logits after a padded prompt that was read twice over and a token, two ways."""
    inputs = left_padded([[2, 3, 4], [5]], 0, model.device)
    cache = GrowingCache(model.config.num_hidden_layers, 4)
    model(**inputs, past_key_values=cache, logits_to_keep=1)
    rows, tokens = torch.tensor([[1, 0, 1], [6, 7, 8]], device=model.device)
    cache.select(rows)
    attention = inputs["attention_mask"][rows]
    ours = model(
        input_ids=tokens[:, None],
        attention_mask=torch.cat([attention, torch.ones_like(attention[:, :1])], dim=1),
        position_ids=attention.sum(1)[:, None],
        past_key_values=cache,
    ).logits[-1:, -1]
    whole = torch.tensor([[5, 8]], device=model.device)
    return apart(ours, model(input_ids=whole, use_cache=False).logits[:, -1])
