"""Bytes of tensors alive while something runs, counted at every operation that makes one."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):
    """Counts each storage once, from the operation that returns it until nothing holds it.

    What a kernel takes and gives back inside itself is not seen. A storage that is emptied and
    filled again, as FSDP does with whole weights, counts as large as it is.
    """

    def __init__(self, held: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: dict[int, int] = {}
        for tensor in held:
            self._see(tensor)

    def _see(self, tensor: torch.Tensor) -> None:
        # Of a tensor that is spread over processes, what is here.
        storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        size = self._known[key] = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.live -= self._known.pop(key)

    def __enter__(self) -> "LiveMemory":
        self._resize = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> None:
            self._resize(storage, size)
            if (key := storage._cdata) in self._known:
                self.live += size - self._known[key]
                self._known[key] = size
                self.peak = max(self.peak, self.live)

        torch.UntypedStorage.resize_ = resize
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize
        super().__exit__(*raised)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf)
        return result
