"""The sampler and the judge that params.yaml names, on a policy that a row names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from stages.engines.endpoint_reply import AnswerCache, EndpointJudge
from stages.models import prompting
from stages.models import start as models_start
from stages.models.device import ComputeConfig, setup
from stages.models.policy_chooser import PolicyChooser, option_tokens
from stages.models.start import ModelConfig
from stages.params import Params
from stages.rewards.feedback.prompts import REASONING_CUE
from stages.rows import BASE
from stages.sampler import Chooser, Engine

EngineName = Literal["transformers", "vllm"]


def sampler(
    engine: EngineName,
    policy: str,
    seed: int,
    *,
    model: ModelConfig,
    compute: ComputeConfig,
    max_length: int,
    gpu_share: float | None = None,
) -> Engine:
    """What samples from a row of `policies` by name, or from the base model, which `model` is.

    `max_length` is the longest prompt and completion together, in tokens; `gpu_share`, of a GPU's
    memory, what vLLM may take where another model computes beside it.
    """
    if engine == "vllm":
        from stages.engines import vllm

        path = models_start.folder(policy, seed, model)
        return vllm.load(path, dtype=compute.dtype, max_model_len=max_length, gpu_share=gpu_share)
    from stages.engines import transformers

    return transformers.from_model(
        models_start.load(policy, seed, model, compute, setup(compute)),
        models_start.tokenizer(policy, seed),
        max_batch=compute.max_batch,
        max_tokens=compute.max_tokens,
    )


class SamplingConfig(Params):
    """What a stage that asks policies for completions reads of params.yaml."""

    seeds: list[int]
    compute: ComputeConfig
    model: ModelConfig
    engine: EngineName

    def sampler(self, policy: str, seed: int, max_length: int) -> Engine:
        """`sampler` with these."""
        return sampler(
            self.engine, policy, seed, model=self.model, compute=self.compute, max_length=max_length
        )


class PolicyJudge(Params):
    """The policy that the row names in `from`."""

    kind: Literal["policy"]
    max_prompt_tokens: int = Field(gt=0)
    """A longer message is not read: its pair is dropped, and counted."""


Judge = Annotated[PolicyJudge | EndpointJudge, Field(discriminator="kind")]


class Reasoning(Params):
    """What a judge writes before it chooses."""

    max_new_tokens: int = Field(gt=0)


def chooser(
    judge: PolicyJudge | EndpointJudge,
    policy: str,
    seed: int,
    options: Sequence[str],
    reasoning: Reasoning | None,
    *,
    engine: EngineName,
    model: ModelConfig,
    compute: ComputeConfig,
    cache: Path,
) -> Chooser:
    """The judge that chooses between `options`: a policy, as for `sampler`, or an endpoint.

    `cache` is the folder of an endpoint's answers.
    """
    reasoning_tokens = reasoning.max_new_tokens if reasoning is not None else 0
    if isinstance(judge, EndpointJudge):
        if policy != BASE:
            raise ValueError(
                f"expected `from: {BASE}` where the preset's judge is an endpoint, found `from: "
                f"{policy}`: that policy would be asked nothing. Change the row, or take a preset "
                f"whose judge is of kind policy."
            )
        from stages.engines import openai_endpoint

        return openai_endpoint.connect(judge, options, reasoning_tokens, AnswerCache(cache))
    tokenizer = models_start.tokenizer(policy, seed)
    cue = prompting.ids([REASONING_CUE], tokenizer)[0] if reasoning_tokens else []
    length = judge.max_prompt_tokens + reasoning_tokens + len(cue) + 1
    return PolicyChooser(
        engine=sampler(engine, policy, seed, model=model, compute=compute, max_length=length),
        tokenizer=tokenizer,
        option_ids=option_tokens(tokenizer, options),
        max_prompt_tokens=judge.max_prompt_tokens,
        reasoning_tokens=reasoning_tokens,
    )
