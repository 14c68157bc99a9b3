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

from stages.engines.endpoint_reply import AnswerCache, EndpointJudgeConfig
from stages.engines.vllm_hosting import MEMORY_SHARE_ALONE
from stages.models import policy as models_policy
from stages.models import prompting, row_policy, sharding
from stages.models.device import ComputeConfig, setup
from stages.models.policy_judge import PolicyJudge, option_tokens
from stages.models.row_policy import ModelConfig
from stages.params import Params
from stages.rewards.feedback.prompts import OPTIONS, REASONING_CUE
from stages.rows import BASE
from stages.sampler import ColocatedSampler, Engine, Judge, Sample, Sampler

EngineName = Literal["transformers", "vllm"]
ANSWER_CACHE = Path(".pipe/judge-cache")
"""Of endpoints that judge, so that none is asked twice."""


def make_policy_sampler(
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
        return guest if sharding.get_world_size() == 1 else DistributedSampler(guest)
    from stages.engines import transformers

    load = partial(transformers.make_sampler, tokenizer=tokenizer, max_batch=compute.max_batch)
    if sharding.get_world_size() == 1:
        return load(policy)
    device, (path, revision) = setup(compute), source
    copy = models_policy.load_policy(path, compute, device, revision, trained=False)
    return DistributedSampler(load(copy), refresh=partial(copy_weights, policy, copy))


def copy_weights(policy: PreTrainedModel, copy: PreTrainedModel) -> None:
    """Those of a policy spread over processes into a whole copy, one at a time."""
    own = copy.state_dict()
    with torch.no_grad():
        for name, value in models_policy.merged_weights(policy):
            own[name].copy_(value)


@dataclass(frozen=True, slots=True)
class DistributedSampler:
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
        count, own = (
            sharding.get_world_size(),
            slice(sharding.get_rank(), None, sharding.get_world_size()),
        )
        parts: list[Any] = [None] * count
        distributed.all_gather_object(parts, self.engine.sample(prompts[own], seeds[own], **how))
        return [parts[i % count][i // count] for i in range(len(prompts))]

    def rest(self) -> None:
        """See `stages.sampler.ColocatedSampler.rest`; a whole copy stays where it is."""
        if isinstance(self.engine, ColocatedSampler):
            self.engine.rest()

    def close(self) -> None:
        """See `stages.sampler.ColocatedSampler.close`; a whole copy goes with whoever holds it
        last."""
        if isinstance(self.engine, ColocatedSampler):
            self.engine.close()


class PolicyJudgeConfig(Params):
    """The policy that the row names in `from`."""

    kind: Literal["policy"]
    max_prompt_tokens: int = Field(gt=0)
    """A longer message is not read: its pair is dropped, and counted."""


JudgeConfig = Annotated[PolicyJudgeConfig | EndpointJudgeConfig, Field(discriminator="kind")]


class ReasoningConfig(Params):
    """What a judge writes before it chooses."""

    max_new_tokens: int = Field(gt=0)


class SamplingConfig(Params):
    """What a stage that asks policies for completions reads of params.yaml."""

    seeds: list[int]
    compute: ComputeConfig
    model: ModelConfig
    engine: EngineName

    def sampler(
        self, policy: str, seed: int, max_length: int, part: float = MEMORY_SHARE_ALONE
    ) -> Engine:
        """What samples from a row of `policies` by name, or from the base model.

        `max_length` is the longest prompt and completion together, in tokens; `part`, of a GPU's
        free memory, what vLLM takes. Close it before another model is loaded.
        """
        compute = self.compute
        if self.engine == "vllm":
            from stages.engines import vllm

            source = row_policy.locate_policy(policy, seed, self.model)
            return vllm.start_vllm(
                *source, dtype=compute.dtype, max_model_len=max_length, part=part
            )
        from stages.engines import transformers

        return transformers.make_sampler(
            row_policy.load_row_policy(
                policy, seed, self.model, compute, setup(compute), trained=False
            ),
            row_policy.load_row_tokenizer(policy, seed),
            max_batch=compute.max_batch,
            max_tokens=compute.max_tokens,
        )

    def chooser(
        self,
        judge: PolicyJudgeConfig | EndpointJudgeConfig,
        policy: str,
        seed: int,
        reasoning: ReasoningConfig | None = None,
    ) -> Judge:
        """The judge that chooses between `OPTIONS`: a policy, as for `sampler`, or an endpoint."""
        reasoning_tokens = reasoning.max_new_tokens if reasoning is not None else 0
        if isinstance(judge, EndpointJudgeConfig):
            if policy != BASE:
                raise ValueError(
                    f"expected `from: {BASE}` where the preset's judge is an endpoint, found "
                    f"`from: {policy}`: that policy would be asked nothing. Change the row, or "
                    f"take a preset whose judge is of kind policy."
                )
            from stages.engines import openai_endpoint

            return openai_endpoint.connect_endpoint(
                judge, OPTIONS, reasoning_tokens, AnswerCache(ANSWER_CACHE)
            )
        tokenizer = row_policy.load_row_tokenizer(policy, seed)
        cue = prompting.tokenize([REASONING_CUE], tokenizer)[0] if reasoning_tokens else []
        length = judge.max_prompt_tokens + reasoning_tokens + len(cue) + 1
        return PolicyJudge(
            engine=self.sampler(policy, seed, length),
            tokenizer=tokenizer,
            option_ids=option_tokens(tokenizer, OPTIONS),
            max_prompt_tokens=judge.max_prompt_tokens,
            reasoning_tokens=reasoning_tokens,
        )
