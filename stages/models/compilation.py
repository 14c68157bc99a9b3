"""Decoder layers compiled by torch.compile: norms, rotation, casts and sums become few kernels.

Layers are compiled one by one (torch's "regional compilation"), so that one graph serves all layers
of a model, and for any number of rows and tokens. Attention has kernels of its own and stays
outside. Compiled code is kept in `FOLDER`, where the next process reads it.

A kernel may add in an order that depends on the sizes that were seen when it was compiled. A run
that resumes sees others first than one that was never stopped. So before the first batch of a kind
(one row or several, with gradients or without) comes a pass of a fixed size, whose result is thrown
away: compiled code, and so every bit, follows from the model alone. For the same reason Inductor
measures no variants of a kernel against each other.

With a cache of keys and values, as in sampling, layers run as they are (`uncompiled`).
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
BACKEND = "inductor"
AUTO_PARAMETERS = 100_000_000
"""Size from which `auto` compiles on a GPU: smaller models are bound by the start of kernels."""
FIXED_TOKENS = 512
"""Tokens of a row of the first pass of a kind."""
MAX_GRAPHS = 256
"""Kinds of batches times models of a process: after torch's 8 layers would run uncompiled."""
_IS_UNCOMPILED = ContextVar("is_uncompiled", default=False)


def is_chosen(
    setting: bool | Literal["auto"],  # noqa: FBT001
    model: nn.Module,
    device: torch.device,
) -> bool:
    """Whether `compute.compile` means this model, on this device, in this process group.

    `auto` leaves out an architecture that does not name the class of its layers.

    A ValueError for True where several ranks train the model: a rank's first batch of a kind would
    be another's second, and its pass of a fixed size would wait for weights for ever.
    """
    is_single = sharding.get_world_size() == 1
    if setting is True and not is_single:
        raise ValueError(
            "compute.compile: expected auto or false with num_processes above 1, found true: "
            "layers that are sharded are not compiled. Set it to auto."
        )
    if setting == "auto":
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        has_layers = bool(getattr(model, "_no_split_modules", None))
        is_large = num_parameters >= AUTO_PARAMETERS
        return is_single and device.type == "cuda" and has_layers and is_large
    return setting


def compile_layers(model: PreTrainedModel, body: nn.Module) -> None:
    """Compile the decoder layers of a model, in place and at their first use.

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
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(FOLDER.absolute()))
    import torch._dynamo.config as dynamo
    import torch._functorch.config as autograd
    import torch._inductor.config as inductor

    inductor.deterministic = True  # else kernels are chosen by the clock
    autograd.force_non_lazy_backward_lowering = True  # in the pass of a fixed size, too
    dynamo.recompile_limit = dynamo.accumulated_recompile_limit = MAX_GRAPHS
    dynamo.fail_on_recompile_limit_hit = True
    outside: Any = torch.compiler.disable(attention.attend)
    AttentionInterface.register(attention.NAME, outside)
    for layer in layers:
        layer.compile(backend=BACKEND, dynamic=True)
    body.compiled_kinds = set()  # pyright: ignore[reportArgumentType]
    body.register_forward_pre_hook(_compile_kind, with_kwargs=True)


def _compile_kind(body: Any, _: Any, inputs: dict[str, Any]) -> None:
    """Before the first batch of a kind, a pass of `FIXED_TOKENS` of the same kind."""
    if inputs.get("past_key_values") is not None or inputs.get("input_ids") is None:
        return
    if _IS_UNCOMPILED.get():  # the kind is still to be compiled
        return
    input_ids, position_ids = inputs["input_ids"], inputs.get("position_ids")
    flags = (getattr(module, "disable_adapters", None) for module in body.modules())
    # A layer of peft has a flag of that name, a model of transformers a method.
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
    """Context in which compiled layers run as they are."""
    token = _IS_UNCOMPILED.set(True)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        _IS_UNCOMPILED.reset(token)
