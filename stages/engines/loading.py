"""Samplers and judges from names in params.yaml: an engine, and the policy of a row."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import distributed
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.config import Params
from stages.engines.endpoint_reply import AnswerCache, EndpointJudgeConfig
from stages.engines.prefix_cache import PrefixTable, TokenIds
from stages.engines.vllm_hosting import MEMORY_SHARE_ALONE
from stages.models import policy as policies
from stages.models import row_policy, sharding
from stages.models.device import ComputeConfig, setup
from stages.models.policy_judge import PolicyJudge, count_cue_tokens, option_tokens
from stages.models.row_policy import ModelConfig
from stages.rewards.feedback.prompts import OPTIONS
from stages.rows import BASE
from stages.sampler import (
    ColocatedSampler,
    Engine,
    Judge,
    Sample,
    Sampler,
    open_session,
    token_limits,
)

EngineName = Literal["transformers", "vllm"]
ANSWER_CACHE = Path(".pipe/judge-cache")
"""Folder of cached replies of endpoint judges: no request is sent twice."""


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
    """Sampler of a `policy` in training, which samples with its present weights.

    `source`: folder, or hub id and commit, of the loaded `policy`. `num_trained`: number of models
    of its size that are trained on one device, for the memory of their optimizers. `max_length`:
    see `SamplingConfig.load_sampler`.
    """
    is_distributed = sharding.get_world_size() > 1
    if engine == "vllm":
        from stages.engines.vllm_policy import PolicySampler

        colocated = PolicySampler(
            policy=policy,
            source=source,
            compute=compute,
            max_length=max_length,
            num_trained=num_trained,
        )
        return DataParallelSampler(colocated) if is_distributed else colocated
    from stages.engines import transformers

    make = partial(transformers.make_sampler, tokenizer=tokenizer, max_batch=compute.max_batch)
    if not is_distributed:
        return make(policy)
    path, revision = source
    replica = policies.load_policy(path, compute, setup(compute), revision, trained=False)
    return DataParallelSampler(make(replica), refresh=partial(copy_weights, policy, replica))


def copy_weights(policy: PreTrainedModel, replica: PreTrainedModel) -> None:
    """Copy the weights of a policy that is sharded over ranks into an unsharded replica."""
    targets = replica.state_dict()
    with torch.no_grad():
        for name, value in policies.merged_weights(policy):
            targets[name].copy_(value)


@dataclass(slots=True)
class DataParallelSampler:
    """Data-parallel sampler: each rank samples a share of the prompts; all ranks must call it."""

    engine: Sampler
    refresh: Callable[[], None] | None = None
    """Function that copies the policy's weights into the engine; None: the engine does it."""
    _ranks: dict[TokenIds, int] | None = field(default=None, init=False)
    """Rank that sampled each row of a session's last call; None: outside of a session."""

    @contextmanager
    def session(self) -> Iterator[None]:
        """See `stages.sampler.SessionSampler.session`: a row stays on the rank that began it."""
        self._ranks, engine = {}, self.engine
        try:
            with open_session(engine):
                yield
        finally:
            self._ranks = None

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        *,
        max_new_tokens: int | Sequence[int],
        **settings: Any,
    ) -> list[list[Sample]]:
        """See `stages.sampler.Sampler.sample`."""
        if self.refresh is not None and not self._ranks:
            self.refresh()
        limits, ranks = token_limits(max_new_tokens, prompts), self._assign_ranks(prompts)
        share = [i for i, rank in enumerate(ranks) if rank == sharding.get_rank()]
        samples = self.engine.sample(
            [prompts[i] for i in share],
            [seeds[i] for i in share],
            max_new_tokens=[limits[i] for i in share],
            **settings,
        )
        parts: list[Any] = [None] * sharding.get_world_size()
        distributed.all_gather_object(parts, samples)
        parts = [iter(part) for part in parts]
        groups: list[list[Sample]] = [next(parts[rank]) for rank in ranks]
        if self._ranks is not None:
            self._ranks = {
                (*prompt, *sample.token_ids): rank
                for prompt, group, rank in zip(prompts, groups, ranks, strict=True)
                for sample in group
            }
        return groups

    def _assign_ranks(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Rank of each prompt: the rank that has cached its row, else that with fewest prompts."""
        table, sizes = PrefixTable(self._ranks or {}), Counter[int]()
        ranks: list[int] = []
        for prompt in prompts:
            rank = table.find(prompt)
            if rank is None:
                rank = min(range(sharding.get_world_size()), key=lambda rank: sizes[rank])
            sizes[rank] += 1
            ranks.append(rank)
        return ranks

    def sleep(self) -> None:
        """See `stages.sampler.ColocatedSampler.sleep`; a replica keeps its memory."""
        if isinstance(self.engine, ColocatedSampler):
            self.engine.sleep()

    def close(self) -> None:
        """See `stages.sampler.ColocatedSampler.close`; a replica is freed with its last user."""
        if isinstance(self.engine, ColocatedSampler):
            self.engine.close()


class PolicyJudgeConfig(Params):
    """Judge: the policy that the row names in `from`."""

    kind: Literal["policy"]
    max_prompt_tokens: int = Field(gt=0)
    """Limit of a message; a pair with a longer one is dropped, and counted."""


JudgeConfig = Annotated[PolicyJudgeConfig | EndpointJudgeConfig, Field(discriminator="kind")]


class ReasoningConfig(Params):
    """Reasoning that a judge writes before it chooses."""

    max_new_tokens: int = Field(gt=0)
    """Limit of the reasoning; an open thought is closed before the judge chooses."""


class SamplingConfig(Params):
    """Section of params.yaml for stages that sample from policies."""

    seeds: list[int]
    compute: ComputeConfig
    model: ModelConfig
    engine: EngineName

    def load_sampler(
        self, policy: str, seed: int, max_length: int, memory_share: float = MEMORY_SHARE_ALONE
    ) -> Engine:
        """Sampler of a row of `policies`, or of the base model.

        `max_length`: tokens of the longest prompt with its completion. `memory_share`: part of a
        GPU's free memory that vLLM takes. Close it before another model is loaded.
        """
        compute = self.compute
        if self.engine == "vllm":
            from stages.engines import vllm

            return vllm.start_vllm(
                *row_policy.locate_policy(policy, seed, self.model),
                dtype=compute.dtype,
                max_model_len=max_length,
                memory_share=memory_share,
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

    def load_judge(
        self,
        judge: PolicyJudgeConfig | EndpointJudgeConfig,
        policy: str,
        seed: int,
        reasoning: ReasoningConfig | None = None,
    ) -> Judge:
        """Judge that chooses between `OPTIONS`: a policy, as for `load_sampler`, or an endpoint."""
        reasoning_tokens = reasoning.max_new_tokens if reasoning is not None else 0
        if isinstance(judge, EndpointJudgeConfig):
            if policy != BASE:
                raise ValueError(
                    f"expected `from: {BASE}` with an endpoint as the preset's judge, found "
                    f"`from: {policy}`: that policy would not be used. Change the row, or take a "
                    f"preset whose judge is of kind policy."
                )
            from stages.engines import openai_endpoint

            cache = AnswerCache(ANSWER_CACHE)
            return openai_endpoint.connect_endpoint(judge, OPTIONS, reasoning_tokens, cache)
        tokenizer = row_policy.load_row_tokenizer(policy, seed)
        num_cue_tokens = count_cue_tokens(tokenizer, has_reasoning=reasoning_tokens > 0)
        length = judge.max_prompt_tokens + reasoning_tokens + num_cue_tokens + 1
        return PolicyJudge(
            engine=self.load_sampler(policy, seed, length),
            tokenizer=tokenizer,
            option_ids=option_tokens(tokenizer, OPTIONS),
            max_prompt_tokens=judge.max_prompt_tokens,
            reasoning_tokens=reasoning_tokens,
        )
