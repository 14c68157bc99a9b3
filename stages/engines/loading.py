"""The sampler and the judge that params.yaml names, on a policy that a row names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import distributed
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.engines.endpoint_reply import AnswerCache, EndpointJudge
from stages.engines.vllm_hosting import ALONE
from stages.models import policy as models_policy
from stages.models import prompting, sharding
from stages.models import start as models_start
from stages.models.device import ComputeConfig, setup
from stages.models.policy_chooser import PolicyChooser, option_tokens
from stages.models.start import ModelConfig
from stages.params import Params
from stages.rewards.feedback.prompts import OPTIONS, REASONING_CUE
from stages.rows import BASE
from stages.sampler import Chooser, Engine, Guest, Sample, Sampler

EngineName = Literal["transformers", "vllm"]
ANSWERS = Path(".pipe/judge-cache")
"""Of endpoints that judge, so that none is asked twice."""


def of_policy(
    engine: EngineName,
    num_trained: int,
    policy: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    source: tuple[str | Path, str | None],
    compute: ComputeConfig,
    max_length: int,
) -> Sampler:
    """What samples from a `policy` in training as it is, loaded from the folder or hub id `source`.

    `num_trained`: models of its size that are trained on one device; `max_length` as of
    `SamplingConfig.sampler`.
    """
    if engine == "vllm":
        from stages.engines.vllm_policy import PolicySampler

        guest = PolicySampler(
            policy=policy,
            source=source,
            compute=compute,
            max_length=max_length,
            num_trained=num_trained,
        )
        return guest if sharding.count() == 1 else Divided(guest)
    from stages.engines import transformers

    load = partial(transformers.from_model, tokenizer=tokenizer, max_batch=compute.max_batch)
    if sharding.count() == 1:
        return load(policy)
    device, (path, revision) = setup(compute), source
    copy = models_policy.load(path, compute, device, revision, trained=False)
    return Divided(load(copy), refresh=partial(copy_weights, policy, copy))


def copy_weights(policy: PreTrainedModel, copy: PreTrainedModel) -> None:
    """Those of a policy spread over processes into a whole copy, one at a time."""
    own = copy.state_dict()
    with torch.no_grad():
        for name, value in models_policy.weights(policy):
            own[name].copy_(value)


@dataclass(frozen=True, slots=True)
class Divided:
    """Samples in several processes, each for a part of the prompts; all have to call it."""

    engine: Sampler
    refresh: Callable[[], None] | None = None
    """Brings the engine up to date with the policy; None: it does so itself."""

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], **how: Any
    ) -> list[list[Sample]]:
        """See `stages.sampler.Sampler.sample`."""
        if self.refresh is not None:
            self.refresh()
        count, own = sharding.count(), slice(sharding.rank(), None, sharding.count())
        parts: list[Any] = [None] * count
        distributed.all_gather_object(parts, self.engine.sample(prompts[own], seeds[own], **how))
        return [parts[i % count][i // count] for i in range(len(prompts))]

    def rest(self) -> None:
        """See `stages.sampler.Guest.rest`; a whole copy stays where it is."""
        if isinstance(self.engine, Guest):
            self.engine.rest()

    def close(self) -> None:
        """See `stages.sampler.Guest.close`; a whole copy goes with whoever holds it last."""
        if isinstance(self.engine, Guest):
            self.engine.close()


class PolicyJudge(Params):
    """The policy that the row names in `from`."""

    kind: Literal["policy"]
    max_prompt_tokens: int = Field(gt=0)
    """A longer message is not read: its pair is dropped, and counted."""


Judge = Annotated[PolicyJudge | EndpointJudge, Field(discriminator="kind")]


class Reasoning(Params):
    """What a judge writes before it chooses."""

    max_new_tokens: int = Field(gt=0)


class SamplingConfig(Params):
    """What a stage that asks policies for completions reads of params.yaml."""

    seeds: list[int]
    compute: ComputeConfig
    model: ModelConfig
    engine: EngineName

    def sampler(self, policy: str, seed: int, max_length: int, part: float = ALONE) -> Engine:
        """What samples from a row of `policies` by name, or from the base model.

        `max_length` is the longest prompt and completion together, in tokens; `part`, of a GPU's
        free memory, what vLLM takes. Close it before another model is loaded.
        """
        compute = self.compute
        if self.engine == "vllm":
            from stages.engines import vllm

            source = models_start.source(policy, seed, self.model)
            return vllm.load(*source, dtype=compute.dtype, max_model_len=max_length, part=part)
        from stages.engines import transformers

        return transformers.from_model(
            models_start.load(policy, seed, self.model, compute, setup(compute), trained=False),
            models_start.tokenizer(policy, seed),
            max_batch=compute.max_batch,
            max_tokens=compute.max_tokens,
        )

    def chooser(
        self,
        judge: PolicyJudge | EndpointJudge,
        policy: str,
        seed: int,
        reasoning: Reasoning | None = None,
    ) -> Chooser:
        """The judge that chooses between `OPTIONS`: a policy, as for `sampler`, or an endpoint."""
        reasoning_tokens = reasoning.max_new_tokens if reasoning is not None else 0
        if isinstance(judge, EndpointJudge):
            if policy != BASE:
                raise ValueError(
                    f"expected `from: {BASE}` where the preset's judge is an endpoint, found "
                    f"`from: {policy}`: that policy would be asked nothing. Change the row, or "
                    f"take a preset whose judge is of kind policy."
                )
            from stages.engines import openai_endpoint

            return openai_endpoint.connect(judge, OPTIONS, reasoning_tokens, AnswerCache(ANSWERS))
        tokenizer = models_start.tokenizer(policy, seed)
        cue = prompting.ids([REASONING_CUE], tokenizer)[0] if reasoning_tokens else []
        length = judge.max_prompt_tokens + reasoning_tokens + len(cue) + 1
        return PolicyChooser(
            engine=self.sampler(policy, seed, length),
            tokenizer=tokenizer,
            option_ids=option_tokens(tokenizer, OPTIONS),
            max_prompt_tokens=judge.max_prompt_tokens,
            reasoning_tokens=reasoning_tokens,
        )
