"""A key/value cache whose layers grow by writing into spare room, not by copying.

transformers' DynamicCache concatenates at every token, which copies the whole cache each time:
quadratic memory traffic, and most of the time of decoding a small model.
"""

from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer, as views of storage with `capacity` positions."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def update(  # type: ignore[override]
        self,
        key_states: Float[Tensor, "batch head new dim"],
        value_states: Float[Tensor, "batch head new dim"],
        *_args: object,
        **_kwargs: object,
    ) -> tuple[Float[Tensor, "batch head seq dim"], Float[Tensor, "batch head seq dim"]]:
        """Write the new positions in place; returns views of everything so far."""
        if not self.is_initialized:
            self.dtype, self.device = key_states.dtype, key_states.device
            batch, heads, _, dim = key_states.shape
            self._keys = key_states.new_empty(batch, heads, self.capacity, dim)
            self._values = value_states.new_empty(batch, heads, self.capacity, dim)
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
