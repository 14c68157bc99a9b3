"""The judge that params.yaml names: a policy by either engine, or an endpoint."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from stages.chooser import Chooser, NextToken
from stages.models import prompting
from stages.models import start as models_start
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.models.policy_chooser import option_tokens
from stages.params import Params
from stages.rewards.feedback import prompts as feedback_reasoning
from stages.rows import BASE


class PolicyJudge(Params):
    """The policy that the row names in `from`."""

    kind: Literal["policy"]
    max_prompt_tokens: int = Field(gt=0)
    """A longer message is not read: its pair is dropped, and counted."""


class EndpointJudge(Params):
    """A server that speaks OpenAI's protocol, of a row `from: base`; the environment says where."""

    kind: Literal["endpoint"]
    model: str
    """The name by which the server knows it."""
    revision: str = Field(min_length=1)
    """Which weights and settings stand behind that name, in your words: a commit, a date. Nobody is
    told it; another one means another judge, whose answers are not those of the cache."""
    api: Literal["chat", "completions"]
    """`completions` where the model has no chat template."""
    top_logprobs: int = Field(ge=2, le=20)
    """Of so many likeliest tokens the server tells the probability; most servers: at most 20."""


Judge = Annotated[PolicyJudge | EndpointJudge, Field(discriminator="kind")]


class Reasoning(Params):
    """What a judge writes before it chooses."""

    max_new_tokens: int = Field(gt=0)


def load(
    judge: PolicyJudge | EndpointJudge,
    policy: str,
    seed: int,
    options: Sequence[str],
    reasoning: Reasoning | None,
    *,
    engine: Literal["transformers", "vllm"],
    model: ModelConfig,
    compute: ComputeConfig,
    cache: Path,
) -> Chooser:
    """The judge.

    Args:
        judge: what kind it is.
        policy: a row of `policies`, or the base model; of an endpoint the latter.
        seed: of the policy.
        options: what it chooses from.
        reasoning: what it writes before; None: nothing.
        engine: of a policy.
        model: says what the base model is.
        compute: of a policy.
        cache: the folder of an endpoint's answers.

    Raises:
        ValueError: an endpoint beside a policy, or a model that cannot judge.
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
        from stages.engines.endpoint_reply import AnswerCache

        return openai_endpoint.connect(
            model=judge.model,
            revision=judge.revision,
            api=judge.api,
            top_logprobs=judge.top_logprobs,
            reasoning_tokens=reasoning_tokens,
            options=options,
            cache=AnswerCache(cache),
        )
    from stages.engines import samplers
    from stages.engines.transformers import TransformersSampler
    from stages.models.policy_chooser import PolicyChooser, TransformersNextToken

    tokenizer = models_start.tokenizer(policy, seed)
    cue = (
        prompting.ids([feedback_reasoning.REASONING_CUE], tokenizer)[0] if reasoning_tokens else []
    )
    length = judge.max_prompt_tokens + reasoning_tokens + len(cue) + 1
    sampler = samplers.load(engine, policy, seed, model=model, compute=compute, max_length=length)
    reader = sampler
    if isinstance(sampler, TransformersSampler):
        reader = TransformersNextToken(
            model=sampler.model, pad_id=sampler.pad_id, max_tokens=compute.max_tokens
        )
    assert isinstance(reader, NextToken), f"{type(reader)} tells no next-token probabilities"
    return PolicyChooser(
        reader=reader,
        sampler=sampler,
        tokenizer=tokenizer,
        option_ids=option_tokens(tokenizer, options),
        max_prompt_tokens=judge.max_prompt_tokens,
        reasoning_tokens=reasoning_tokens,
    )
