"""Bytes of live tensors while the stages' own loops run on tensors that hold no numbers.

torch's fake tensors (`FakeTensorMode`) have shape, type and device and take no memory and no time.
A model built of them goes through the real code: forward and backward pass, gradient checkpointing,
autocast, adapters, optimizer. Token ids, masks, lengths and samples are real, so that loops go the
way that they say. A number that a loop asks of a fake tensor is 0, a yes or no is yes. torch's own
`MemTracker` counts modules and optimizers that it is told of; the loops make theirs as they go.
"""

import gc
import warnings
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WHOLE = "update"
"""The phase of everything that is in no other phase."""


class LiveBytes(TorchDispatchMode):
    """Counts each storage once, from the operation that returns it until nothing holds it.

    What a kernel takes and gives back inside itself is not seen, nor what an allocator rounds up.
    Of fake tensors it also answers what they cannot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peaks: dict[str, int] = {}
        """Phase -> largest number of live bytes in it."""
        self._phase = WHOLE
        self._sizes: dict[int, int] = {}

    def see(self, tensor: Tensor) -> None:
        """Count the tensor's storage, if it is a new one."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.live += storage.nbytes()
            self.peaks[self._phase] = max(self.peaks.get(self._phase, 0), self.live)
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.live -= self._sizes.pop(key)

    def reset_peaks(self) -> None:
        """Reset the peaks."""
        gc.collect()
        self.peaks = {WHOLE: self.live}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Within, peaks count for the phase `name`."""
        before = self._phase
        self.enter(name)
        try:
            yield
        finally:
            self._phase = before

    def enter(self, name: str) -> None:
        """From now on, peaks count for the phase `name`."""
        self._phase = name
        self.peaks[name] = max(self.peaks.get(name, 0), self.live)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            constant = torch.ones if args[0].dtype == torch.bool else torch.zeros
            return constant((), dtype=args[0].dtype).item()
        if func is torch.ops.aten.index.Tensor:
            # Where a real mask is True is known; to a fake tensor it would be some unknown number.
            places = [_where(index) for index in args[1]]
            args = (args[0], [place for parts in places for place in parts])
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.see(leaf)
        return result


def _where(index: Tensor | None) -> list[Tensor | None]:
    is_mask = index is not None and index.dtype == torch.bool and not isinstance(index, FakeTensor)
    return [*index.nonzero().unbind(1)] if is_mask else [index]  # pyright: ignore[reportOptionalMemberAccess]


class _AsArrays(TorchFunctionMode):
    """`numpy()` of a fake tensor: an array of its shape, all yes or all 0."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.numpy and isinstance(args[0], FakeTensor):
            kind = np.bool_ if args[0].dtype == torch.bool else np.float32
            fill = np.ones if kind is np.bool_ else np.zeros
            return fill(tuple(args[0].shape), dtype=kind)
        return func(*args, **(kwargs or {}))


@contextmanager
def count_live_bytes(dtype: str) -> Iterator[tuple[LiveBytes, FakeTensorMode]]:
    """Within, live bytes are counted, with products in `dtype`, as `device.setup` has them.

    Yields the counter, and the mode in which a model is to be built so that it is fake.
    """
    low = dtype == "bfloat16"
    with ExitStack() as stack:
        live = LiveBytes()
        stack.enter_context(warnings.catch_warnings())
        # Copying a head, as peft does, asks for the address of what has none.
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        stack.enter_context(torch.autocast("cpu", torch.bfloat16, low, cache_enabled=False))
        stack.enter_context(live)
        stack.enter_context(_AsArrays())
        yield live, FakeTensorMode(allow_non_fake_inputs=True)


def make_fake(model: nn.Module, fake: FakeTensorMode) -> None:
    """Make the model's real parameters, such as adapters attached later, fake too."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if not isinstance(parameter, FakeTensor):
                tensor = fake.from_tensor(parameter.detach())
                setattr(module, name, nn.Parameter(tensor, requires_grad=parameter.requires_grad))
