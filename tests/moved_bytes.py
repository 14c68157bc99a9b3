"""Bytes that operations read and write, from the shapes of what they take and return."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PICKED = {"gather", "scatter_add", "index_select", "embedding"}
"""Operations that touch as many numbers as they are given places, not all of their input."""


class MovedBytes(TorchDispatchMode):
    """Sums them over every operation that is not a view: as if nothing stayed in a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = [
                t for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor)
            ]
            sizes = [t.numel() * t.itemsize for t in tensors]
            if func._schema.name.removeprefix("aten::").rstrip("_") in PICKED:
                sizes = [min(sizes)] * 3
            self.bytes += sum(sizes)
        return result
