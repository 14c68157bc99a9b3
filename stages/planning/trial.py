"""Trial of a stage for its memory: its sizes, longest texts, and fake models and samplers."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
)

from stages.engines.transformers import TransformersSampler
from stages.models import policy, row_policy
from stages.models.policy import Policy
from stages.models.process_head import ProcessHead
from stages.models.scalar_head import ScalarHead
from stages.planning.fake_tensors import WHOLE, LiveBytes, make_fake
from stages.sampler import Sample

PAD, EOS, TEXT, MARK = 0, 1, 2, 3
HEADS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "policy": (Policy, AutoModelForCausalLM, {}),
    "reward": (ScalarHead, AutoModelForSequenceClassification, {"num_labels": 1}),
    "process": (ProcessHead, AutoModelForTokenClassification, {"num_labels": 2}),
}
"""What a model is for -> what reads batches with it, and transformers' class of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Sizes of a stage that a model computes in."""

    entry_point: str
    config: Any
    """The entry point's `Config`, with its preset."""
    base: PretrainedConfig
    """Of the policy; reward and value models are made from it."""
    prompt: int
    """Tokens of the longest prompt."""
    completion: int
    """Of the longest completion."""
    samples: int
    """Completions of a prompt, where several are read or drawn side by side."""
    scorers: tuple[str, ...] = ()
    """What each model that a reward asks is for, a key of `HEADS`."""
    is_gpu: bool = False
    """Whether the memory of a GPU is planned."""

    def completions(self, number: int) -> list[list[int]]:
        """Completions of the largest length, all different."""
        ids = [TEXT] * (self.completion - 1) + [EOS]
        return [[MARK + i % 7, *ids[1:]] if len(ids) > 1 else ids for i in range(number)]

    @property
    def num_processes(self) -> int:
        """That train its models together; what is measured is the first of them."""
        return getattr(self.config, "num_processes", 1)

    def numbers(self, num_prompts: int, per_prompt: int) -> range:
        """Prompts of an optimizer step in one process: at most two micro-batches."""
        length = self.prompt + per_prompt * self.completion
        per_process = -(-num_prompts // self.num_processes)
        return range(min(per_process, 2 * max(1, self.config.compute.max_tokens // length)))


def is_vllm(config: Any) -> bool:
    """Whether vLLM samples for a stage with this `Config`."""
    return getattr(config, "engine", "") == "vllm"


@dataclass(kw_only=True, slots=True)
class Models:
    """Fake models of a trial, whose bytes are counted."""

    trial: Trial
    live: LiveBytes
    fake: FakeTensorMode
    gradients: int = 0
    """Bytes by which what is counted was corrected for gradients; outside an update are none."""
    at_work: int = 0
    """Bytes of the weights that are whole while a model is at work; two never are at a time."""

    def build(self, use: str, *, trained: bool = False, spread: bool = True) -> Any:
        """One for `use`, as it is when it is loaded; `trained`: with the adapters, if any.

        `spread`: over the processes, if there are several.
        """
        reader, auto_class, labels = HEADS[use]
        config = copy.deepcopy(self.trial.base)
        config.update({"pad_token_id": PAD, "step_token_id": EOS, "step_separator": "\n"} | labels)
        with self.fake:
            model = auto_class.from_config(config)
        # A fake tensor is where it is, and cannot be moved.
        model.to = lambda *_: model
        for tensor in (*model.parameters(), *model.buffers()):
            self.live.see(tensor)
        device = torch.device("cpu")
        policy.prepare_model(model, self.trial.config.compute, device, trained=trained)
        without = row_policy.add_adapters(model, self.trial.config.lora, 0) if trained else None
        make_fake(model, self.fake)
        if spread and self.trial.num_processes > 1:
            self._spread(model, trained=trained)
        batching = self.trial.config.compute, PAD
        return Policy(model, *batching, without) if reader is Policy else reader(model, *batching)

    def _spread(self, model: PreTrainedModel, *, trained: bool) -> None:
        """Count what one process holds of a model that is spread over several (`sharding`).

        A part of its weights, gradients and moments; whole, in the compute dtype, what is outside
        its blocks, and a block that is at work and the next.
        """
        part, dtype = 1 / self.trial.num_processes, getattr(torch, self.trial.config.compute.dtype)
        kinds = model._no_split_modules or ()
        num_bytes = sum(tensor.nbytes for tensor in model.parameters())
        for tensor in model.parameters():
            # As they are gathered: no product casts and keeps them.
            tensor.data = tensor.data.to(dtype)
        blocks = [_size(module) for module in model.modules() if type(module).__name__ in kinds]
        num_trained = sum(
            tensor.numel() for tensor in model.parameters() if trained and tensor.requires_grad
        )
        gradients = round((4 * part - dtype.itemsize) * num_trained)
        self.live.live += round(part * num_bytes) - dtype.itemsize * _size(model) + 3 * gradients
        at_work = dtype.itemsize * (_size(model) - sum(blocks) + 2 * max(blocks, default=0))
        self.live.live += max(0, at_work - self.at_work)
        self.at_work = max(at_work, self.at_work)
        self.gradients += gradients

    def sampler(self, model: PreTrainedModel, max_prompts: int = 2**30) -> "FullLength":
        """What the stage would sample from the model with, at most so many prompts at once."""
        compute, engine = self.trial.config.compute, None
        if not is_vllm(self.trial.config):
            engine = TransformersSampler(
                model=model, eos_ids=frozenset([EOS]), pad_id=PAD, max_batch=compute.max_batch,
                max_tokens=compute.max_tokens,
            )  # fmt: skip
        return FullLength(engine=engine, trial=self.trial, live=self.live, max_prompts=max_prompts)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass(frozen=True, kw_only=True, slots=True)
class FullLength:
    """Sampler whose completions are made up and have the maximal length.

    With the transformers engine, the memory of prefill and first token is counted. While it is
    awake the phase is `sampling` or `forward pass`.
    """

    engine: TransformersSampler | None
    """None: vLLM samples, whose memory is not counted here."""
    trial: Trial
    live: LiveBytes
    max_prompts: int
    """Prompts that the stage samples for at once."""

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], **how: Any
    ) -> list[list[Sample]]:
        """Completions as long as they may be; every fake token ends one, so the cache is whole."""
        with self.live.phase("sampling"):
            if self.engine is not None:
                num_prompts = min(
                    self.max_prompts, max(1, self.engine.max_batch // how["num_samples"])
                )
                self.engine.sample([prompts[0]] * num_prompts, [seeds[0]] * num_prompts, **how)
        self.live.enter("forward pass")
        samples = [
            Sample(token_ids=ids, logprobs=[0.0] * len(ids), finish_reason="stop")
            for ids in self.trial.completions(how["num_samples"])
        ]
        return [samples for _ in prompts]

    def sleep(self) -> None:
        """See `stages.sampler.ColocatedSampler.sleep`."""
        self.live.enter(WHOLE)

    def close(self) -> None:
        """See `stages.sampler.ColocatedSampler.close`."""
