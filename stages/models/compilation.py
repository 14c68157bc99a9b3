"""Compilation of decoder layers by torch.compile, which fuses norms, rotation, casts and sums.

Layers are compiled one by one (torch's "regional compilation"), so that one graph serves all layers
of a model, and for any number of rows and tokens. Attention has its own kernels and is not
compiled. `FOLDER` caches the compiled code for later processes.

The order of a kernel's sums may depend on the sizes at its compilation, and a resumed run begins
with other sizes than an uninterrupted one. So before the first batch of a kind (one row or several,
with gradients or without) comes a pass of a fixed size, whose result is discarded: compiled code,
and so every bit, depends only on the model. For the same reason Inductor does not benchmark
variants of a kernel.

With a key/value cache, as in sampling, layers run uncompiled (`uncompiled`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel

from stages.models import attention, sharding

FOLDER = Path(".pipe/compiled")
CACHE_DIR = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable with Inductor's folder; a user's value is kept."""
BACKEND = "inductor"
AUTO_PARAMETERS = 100_000_000
"""Size from which `auto` compiles on a GPU: smaller models are bound by kernel launches."""
FIXED_TOKENS = 512
"""Tokens per row of the first pass of a kind."""
MAX_GRAPHS = 256
"""Limit of kinds of batches times models in a process; beyond torch's default, 8, layers would run
uncompiled."""
_IS_UNCOMPILED = ContextVar("is_uncompiled", default=False)


def is_chosen(
    setting: bool | Literal["auto"],  # noqa: FBT001
    model: nn.Module,
    device: torch.device,
) -> bool:
    """Whether `compute.compile` compiles this model, on this device, in this process group.

    `auto` leaves out an architecture that does not name the class of its layers.

    A ValueError for True if several ranks train the model: the first batch of a kind on one rank
    may be the second on another, and its pass of a fixed size would wait for weights forever.
    """
    is_single = sharding.get_world_size() == 1
    if setting is True and not is_single:
        raise ValueError(
            "compute.compile: expected auto or false with num_processes above 1, found true: "
            "sharded layers are not compiled. Set it to auto."
        )
    if setting == "auto":
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        has_layers = bool(getattr(model, "_no_split_modules", None))
        is_large = num_parameters >= AUTO_PARAMETERS
        return is_single and device.type == "cuda" and has_layers and is_large
    return setting


def compile_layers(model: PreTrainedModel, body: nn.Module) -> None:
    """Compile the decoder layers of a model, in place, at their first use.

    `body`: the model without its head. A ValueError for an architecture that does not name its
    layers' class.
    """
    kinds = model._no_split_modules or ()
    layers = [module for module in body.modules() if type(module).__name__ in kinds]
    if not layers:
        raise ValueError(
            f"compute.compile: expected a model that names the class of its layers, found "
            f"{type(model).__name__}, which does not. Set it to false."
        )
    import torch._dynamo.config as dynamo
    import torch._functorch.config as autograd
    import torch._inductor.config as inductor
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    # torch's imports set it to a folder below /tmp, which a new container does not have
    if os.environ.get(CACHE_DIR) in (None, default_cache_dir()):
        os.environ[CACHE_DIR] = str(FOLDER.absolute())
    inductor.deterministic = True  # else kernels are chosen by timing
    autograd.force_non_lazy_backward_lowering = True  # in the fixed-size pass, too
    dynamo.recompile_limit = dynamo.accumulated_recompile_limit = MAX_GRAPHS
    dynamo.fail_on_recompile_limit_hit = True
    outside: Any = torch.compiler.disable(attention.attend)
    AttentionInterface.register(attention.NAME, outside)
    for layer in layers:
        layer.compile(backend=BACKEND, dynamic=True)
    body.compiled_kinds = set()  # pyright: ignore[reportArgumentType]
    body.register_forward_pre_hook(_compile_kind, with_kwargs=True)


def _compile_kind(body: Any, _: Any, inputs: dict[str, Any]) -> None:
    """Hook: before the first batch of a kind, run a pass of `FIXED_TOKENS` of that kind."""
    if inputs.get("past_key_values") is not None or inputs.get("input_ids") is None:
        return
    if _IS_UNCOMPILED.get():  # the kind will be compiled later
        return
    input_ids, position_ids = inputs["input_ids"], inputs.get("position_ids")
    flags = (getattr(module, "disable_adapters", None) for module in body.modules())
    # In peft's layers the name is a flag, in transformers' models a method.
    is_plain = next((flag for flag in flags if isinstance(flag, bool)), False)
    kind = (
        len(input_ids) == 1, position_ids is None, torch.is_grad_enabled(), body.training, is_plain,
    )  # fmt: skip
    if kind in body.compiled_kinds:
        return
    body.compiled_kinds.add(kind)
    limit = getattr(body.config.get_text_config(decoder=True), "max_position_embeddings", None)
    positions = torch.arange(min(FIXED_TOKENS, limit or FIXED_TOKENS), device=input_ids.device)
    rows = positions.repeat(min(2, len(input_ids)), 1)
    body(
        input_ids=torch.zeros_like(rows), attention_mask=None, use_cache=False,
        position_ids=None if position_ids is None else rows,
    )  # fmt: skip


@contextmanager
def uncompiled() -> Iterator[None]:
    """Context in which compiled layers run uncompiled."""
    token = _IS_UNCOMPILED.set(True)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        _IS_UNCOMPILED.reset(token)
