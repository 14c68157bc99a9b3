"""vLLM colocated with a policy in training, in one process with it: rollouts from its weights.

vLLM holds a copy of the policy. It is refreshed in the first call of `sample` after `sleep`, which
says that the weights are about to change; weight by weight and adapters merged, by vLLM's own
weight transfer (https://docs.vllm.ai/en/v0.32.0/training/weight_transfer): `InProcess`, beside its
engines for CUDA IPC and NCCL, which carry weights between processes. Where several ranks train the
policy, each has an engine of its own, and all refresh together. Where a process samples beside the
trainer's (`loops/overlap`), the engine is in it, with a policy to copy from.

On a GPU the engine sleeps while the policy is trained: weights and cache give their memory back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from stages.engines import vllm, vllm_hosting
from stages.engines.vllm import VllmSampler
from stages.models import policy as policies
from stages.models.device import ComputeConfig
from stages.sampler import Sample

MOMENTS = 2
"""AdamW's moments of each trained weight, in the weight's own precision."""


@dataclass(kw_only=True)
class PolicySampler:
    """Sampler of `policy` as it is at the time of the call: a `stages.sampler.ColocatedSampler`.

    vLLM starts with the first call, when every model beside it has been loaded, and in the process
    of that call: one that is forked before has an engine of its own.
    """

    policy: PreTrainedModel
    source: tuple[str | Path, str | None]
    """Folder, or hub id and commit, of which vLLM reads everything but the weights."""
    compute: ComputeConfig
    max_length: int
    """Limit of prompt and completion together, in tokens."""
    num_trained: int
    """Models of the policy's size that are trained: their optimizers will need memory."""

    def __post_init__(self) -> None:
        """Raise a ValueError where vLLM is missing."""
        vllm_hosting.require_vllm()
        self._engine: VllmSampler | None = None
        self._stale, self._asleep = True, False

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], **settings: Any
    ) -> list[list[Sample]]:
        """See `stages.sampler.Sampler.sample` and `VllmSampler.sample`."""
        if self._engine is None:
            self._engine = self._start_engine()
        self._wake_and_refresh(self._engine.llm)
        return self._engine.sample(prompts, seeds, **settings)

    def sleep(self) -> None:
        """See `stages.sampler.ColocatedSampler.sleep`; on a CPU the copy keeps its memory."""
        self._stale = True
        if self._engine is not None and torch.cuda.is_available() and not self._asleep:
            self._engine.llm.sleep(level=2)  # drops the weights: they will be other ones
            self._asleep = True

    def close(self) -> None:
        """See `stages.sampler.ColocatedSampler.close`."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _start_engine(self) -> VllmSampler:
        trained_bytes = sum(
            weight.numel() * weight.element_size()
            for weight in self.policy.parameters()
            if weight.requires_grad
        )
        vllm_hosting.prepare_process()
        from stages.engines import vllm_transfer

        return vllm.start_vllm(
            *self.source,
            dtype=self.compute.dtype,
            max_model_len=self.max_length,
            # Reference, value and reward models compute while it is awake.
            memory_share=vllm_hosting.MEMORY_SHARE_BESIDE,
            reserved=MOMENTS * self.num_trained * trained_bytes,
            load_format="dummy",  # the first refresh brings the weights
            weight_transfer_config=vllm_transfer.transfer_config(),
            enable_sleep_mode=torch.cuda.is_available(),
        )

    def _wake_and_refresh(self, llm: Any) -> None:
        """Wake the engine, and bring it the policy's weights where its own are stale."""
        with vllm_hosting.vllm_precision():
            if self._asleep:
                torch.cuda.empty_cache()  # what torch's allocator has cached is the engine's now
                llm.wake_up(tags=["weights"])
            if self._stale:
                llm.start_weight_update()
                llm.update_weights({"update_info": {"weights": checkpoint_weights(self.policy)}})
                llm.finish_weight_update()
            if self._asleep:
                llm.wake_up(tags=["kv_cache"])
            if self._stale:
                is_reset = llm.reset_prefix_cache()  # keys and values of the weights before
                assert is_reset, "no request runs between calls"
        self._stale = self._asleep = False


def checkpoint_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """`policy.merged_weights` with the names and layout in which transformers saves them."""
    for name, value in policies.merged_weights(model):
        yield from revert_weight_conversion(model, {name: value}).items()
