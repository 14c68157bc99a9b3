"""Training of one model on several ranks, with a shard of every weight on each: torch's FSDP2.

Each rank passes its rows of a micro-batch (`models/batch`) through the whole model: a block's
weights are gathered while the block needs them. Results, a number for each token or completion, are
gathered on all ranks. So losses and metrics are the same on all ranks, and up to rounding those of
one process; loops need not know of ranks. Gradients flow back to each rank's rows, and are summed
over the ranks. With one process nothing is wrapped.
"""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch import distributed as dist

import stages

ModelT = TypeVar("ModelT", bound=nn.Module)
ValueT = TypeVar("ValueT")


def init_process_group() -> None:
    """Join the process group, if the environment names one (`runtime/ranks`)."""
    if (address := os.environ.get(stages.MEETING)) and not dist.is_initialized():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", init_method=address
        )


def get_world_size() -> int:
    """Number of processes that train this model."""
    return dist.get_world_size() if dist.is_initialized() else 1


def get_rank() -> int:
    """Number of this process among those that train this model, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def shard_model(model: ModelT) -> ModelT:
    """Shard a `batch.BatchModel`, in place, over the ranks; returns it.

    Call it after adapters are added, and before the model has an optimizer.
    """
    if get_world_size() == 1:
        return model
    from torch.distributed.fsdp import (
        FSDPModule,
        MixedPrecisionPolicy,
        fully_shard,
        register_fsdp_forward_method,
    )

    exact, mixed = MixedPrecisionPolicy(), MixedPrecisionPolicy()
    if model.compute.dtype == "bfloat16":
        mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    transformer: Any = model.model
    heads = [] if transformer.can_generate() else [*transformer.children()]
    for head in heads:
        if head is not transformer.base_model and [*head.parameters()]:
            fully_shard(head, mp_policy=exact)  # a scalar in bfloat16 would have 8 bits
    block_names = transformer._no_split_modules or ()
    for block in [part for part in transformer.modules() if type(part).__name__ in block_names]:
        fully_shard(block, mp_policy=mixed)
    fully_shard(model, mp_policy=mixed)
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
    if hasattr(model, "logit_states"):  # otherwise last norm and output layer have no gradient
        for method in ("logit_states", "compute_forward_kl"):
            register_fsdp_forward_method(model, method)
    return model


def gather_completions(
    values: Float[Tensor, "part ..."], sizes: Sequence[int], part: slice
) -> Tensor:
    """Values of all completions of a batch, in order, from the `values` of each rank.

    `sizes`: number of values of each completion. `part`: the completions of this rank. Only this
    rank's values have a gradient here.
    """
    if get_world_size() == 1:
        return values
    start = sum(sizes[: part.start])
    return _Gather.apply(values, start, sum(sizes))  # pyright: ignore[reportReturnType]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, start: int, total: int) -> Tensor:
        ctx.part = slice(start, start + len(values))
        gathered = values.new_zeros(total, *values.shape[1:])
        gathered[ctx.part] = values
        dist.all_reduce(gathered)  # a sum: each value is 0 on all ranks but one
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient[ctx.part], None, None


def full_tensor(value: Tensor) -> Tensor:
    """Unsharded value of a weight, or of a tensor computed from weights; all ranks must call."""
    gather = getattr(value, "full_tensor", None)
    return value if gather is None else gather()


def copy_into(target: Tensor, value: Tensor) -> None:
    """Copy an unsharded value, which every rank passes, into a weight, sharded or not."""
    if hasattr(target, "full_tensor"):
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(target, DTensor)
        mesh, placements, value = target.device_mesh, target.placements, value.to(target.device)
        value = distribute_tensor(value, mesh, placements, src_data_rank=None)
    with torch.no_grad():
        target.copy_(value)


def broadcast_from_rank0(value: ValueT) -> ValueT:
    """Value of rank 0; all ranks must call."""
    if get_world_size() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]
