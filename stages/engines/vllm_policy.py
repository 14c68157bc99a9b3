"""vLLM beside a policy in training, in the trainer's process: rollouts from its current weights.

vLLM holds a copy of the policy. It is refreshed before a call of `sample` where an optimizer has
taken a step on the policy since the last refresh, weight by weight and adapters merged, by vLLM's
own weight transfer (https://docs.vllm.ai/en/v0.32.0/training/weight_transfer): `InProcess`, beside
its engines for CUDA IPC and NCCL, which carry weights between processes. Where several processes
train the policy, each has an engine of its own, and all refresh together.

On a GPU the engine sleeps while the policy is trained: weights and cache give their memory back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from stages.engines import vllm, vllm_hosting
from stages.engines.vllm import VllmSampler
from stages.models import policy as models_policy
from stages.models.device import ComputeConfig
from stages.sampler import Sample

MOMENTS = 2
"""Numbers that AdamW keeps of each trained weight, in the weight's own precision."""


@dataclass(kw_only=True)
class PolicySampler:
    """Samples from `policy` as it is at the time of the call; see
    `stages.sampler.ColocatedSampler`.

    vLLM starts with the first call, when all that computes beside it has been loaded.
    """

    policy: PreTrainedModel
    source: tuple[str | Path, str | None]
    """Folder, or hub id and commit, of which vLLM reads everything but the weights."""
    compute: ComputeConfig
    max_length: int
    """The longest prompt and completion together, in tokens."""
    num_trained: int
    """Models of the policy's size that are trained: their optimizers need memory yet."""

    def __post_init__(self) -> None:
        """Refuse what cannot be served; watch the policy's optimizer."""
        vllm_hosting.require_vllm()
        self._engine: VllmSampler | None = None
        self._stale, self._asleep = True, False
        self._watch = register_optimizer_step_post_hook(self._stepped)

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], **how: Any
    ) -> list[list[Sample]]:
        """See `stages.sampler.Sampler.sample` and `VllmSampler.sample`."""
        if self._engine is None:
            self._engine = self._start()
        self._wake(self._engine.llm)
        return self._engine.sample(prompts, seeds, **how)

    def rest(self) -> None:
        """See `stages.sampler.ColocatedSampler.rest`; on a CPU the copy stays where it is."""
        if self._engine is not None and torch.cuda.is_available() and not self._asleep:
            self._engine.llm.sleep(level=2)  # forgets the weights: they will be other ones
            self._asleep = self._stale = True

    def close(self) -> None:
        """See `stages.sampler.ColocatedSampler.close`."""
        self._watch.remove()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _stepped(self, optimizer: Optimizer, *_: Any) -> None:
        """After each step of any optimizer: was it one on the policy?"""
        own = {id(parameter) for parameter in self.policy.parameters()}
        trained = (id(one) for group in optimizer.param_groups for one in group["params"])
        self._stale = self._stale or not own.isdisjoint(trained)

    def _start(self) -> VllmSampler:
        sizes = [one.numel() * one.element_size() for one in _trained(self.policy)]
        vllm_hosting.prepare_process()
        from stages.engines import vllm_transfer

        path, revision = self.source
        return vllm.start_vllm(
            path,
            revision,
            dtype=self.compute.dtype,
            max_model_len=self.max_length,
            # Reference, value and reward models read while it is awake.
            part=vllm_hosting.MEMORY_SHARE_BESIDE,
            reserved=MOMENTS * self.num_trained * sum(sizes),
            load_format="dummy",  # the first refresh brings the weights
            weight_transfer_config=vllm_transfer.transfer_config(),
            enable_sleep_mode=torch.cuda.is_available(),
        )

    def _wake(self, llm: Any) -> None:
        """The engine as it is to be sampled from: awake, and with the policy's weights."""
        with vllm_hosting.vllm_precision():
            if self._asleep:
                torch.cuda.empty_cache()  # what torch keeps for later is the engine's now
                llm.wake_up(tags=["weights"])
            if self._stale:
                llm.start_weight_update()
                llm.update_weights({"update_info": {"weights": checkpoint_weights(self.policy)}})
                llm.finish_weight_update()
            if self._asleep:
                llm.wake_up(tags=["kv_cache"])
            if self._stale:
                llm.reset_prefix_cache()  # keys and values of the weights before
        self._stale = self._asleep = False


def checkpoint_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """`policy.merged_weights` under the names, and in the layout, in which transformers saves
    them."""
    for name, value in models_policy.merged_weights(model):
        yield from revert_weight_conversion(model, {name: value}).items()


def _trained(model: nn.Module) -> Iterator[nn.Parameter]:
    return (parameter for parameter in model.parameters() if parameter.requires_grad)
