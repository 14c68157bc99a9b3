"""One model trained by several processes, a part of every weight in each: torch's FSDP2.

Each process reads its rows of a micro-batch (`models/batch`), through all of the model: a block's
weights are gathered for as long as it needs them. What it finds, a number for each token or
completion, is given to all. So losses and metrics are the same everywhere, those of one process up
to rounding, and no loop knows of it. Gradients flow back to a process's own numbers, and are summed
over the processes. With one process nothing is wrapped.
"""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch import distributed as dist

import stages

RootT = TypeVar("RootT", bound=nn.Module)
ValueT = TypeVar("ValueT")


def init_process_group() -> None:
    """Meet the other processes, where the environment says how (`runtime/ranks`)."""
    if (meeting := os.environ.get(stages.MEETING)) and not dist.is_initialized():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", init_method=meeting
        )


def get_world_size() -> int:
    """How many processes train this model."""
    return dist.get_world_size() if dist.is_initialized() else 1


def get_rank() -> int:
    """Which of them this one is, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def shard_model(root: RootT) -> RootT:
    """`root`, a `batch.BatchModel`, spread over the processes.

    In place, when the model is complete, adapters and all, and before it has an optimizer.
    """
    if get_world_size() == 1:
        return root
    from torch.distributed.fsdp import (
        FSDPModule,
        MixedPrecisionPolicy,
        fully_shard,
        register_fsdp_forward_method,
    )

    exact, mixed = MixedPrecisionPolicy(), MixedPrecisionPolicy()
    if root.compute.dtype == "bfloat16":
        mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model: Any = root.model
    heads = [] if model.can_generate() else [*model.children()]
    for head in heads:
        if head is not model.base_model and [*head.parameters()]:
            fully_shard(head, mp_policy=exact)  # a scalar in bfloat16 would have 8 bits
    blocks = [
        one for one in model.modules() if type(one).__name__ in (model._no_split_modules or ())
    ]
    for block in blocks:
        fully_shard(block, mp_policy=mixed)
    fully_shard(root, mp_policy=mixed)
    for part in root.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
    if hasattr(root, "logit_states"):  # else the last norm and the output layer have no gradient
        register_fsdp_forward_method(root, "logit_states")
    return root


def gather_completions(
    own: Float[Tensor, "part ..."], sizes: Sequence[int], place: slice
) -> Tensor:
    """The values of a batch's completions, in their order, of which this process found `own`.

    `sizes`: how many values a completion has; `place`: which completions are its own. The gradient
    is that of its own values.
    """
    if get_world_size() == 1:
        return own
    start = sum(sizes[: place.start])
    return _Gather.apply(own, start, sum(sizes))  # pyright: ignore[reportReturnType]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, start: int, total: int) -> Tensor:
        ctx.place = slice(start, start + len(own))
        found = own.new_zeros(total, *own.shape[1:])
        found[ctx.place] = own
        dist.all_reduce(found)  # every value is one process's, and 0 in the others
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient[ctx.place], None, None


def full_tensor(value: Tensor) -> Tensor:
    """A weight, or what is computed of weights, as one process has it; all have to ask for it."""
    full = getattr(value, "full_tensor", None)
    return value if full is None else full()


def copy_into(place: Tensor, value: Tensor) -> None:
    """Copy a whole value, which every process has, into a weight or a part of one."""
    if hasattr(place, "full_tensor"):
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(place, DTensor)
        mesh, own = place.device_mesh, value.to(place.device)
        value = distribute_tensor(own, mesh, place.placements, src_data_rank=None)
    with torch.no_grad():
        place.copy_(value)


def broadcast_from_rank0(value: ValueT) -> ValueT:
    """What the first process says; all have to ask for it."""
    if get_world_size() == 1:
        return value
    said = [value]
    dist.broadcast_object_list(said, src=0)
    return said[0]
