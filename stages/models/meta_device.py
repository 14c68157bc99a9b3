"""Models are made without storage where their weights come later, or are only counted."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class WithoutSympy(TorchFunctionMode):
    """Makes them without the import of sympy, 0.4 s in the process of every seed.

    torch would import it to draw a layer's first values on the meta device, where nothing is drawn,
    and to count positions there: they are counted on the CPU.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        weight = (named := kwargs or {}).get("tensor")
        if isinstance(weight, Tensor) and weight.is_meta and func.__module__ == nn.init.__name__:
            return weight
        if func is torch.arange and named.get("device") == torch.device("meta"):
            named["device"] = "cpu"
        return func(*args, **named)
