"""Rollouts: completions that a policy in training samples, and the models and task they are for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from stages.config import Params
from stages.loops import work
from stages.models.batch import Batch, Group, model_batches, split_group
from stages.models.policy import Policy
from stages.records.problems import Prompt
from stages.rewards.completion_rewards import CompletionRewards
from stages.sampler import Sample, Sampler
from stages.seeding import derive_seed

# Rounding stays a hundred times below this gap in the mean.
MAX_LOGPROB_GAP = 0.05
MAX_TRUNCATED_STEPS = 3
Flags = Bool[Tensor, " batch"]
Decode = Callable[[Sequence[int]], str]
"""Tokens to text without special tokens."""


class RolloutConfig(Params):
    """Sampling of completions."""

    temperature: float = Field(gt=0)
    """Divides the logits, in sampling and in every log-probability of what is learned from."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion, in tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """Completion that training sampled: a row of `rollouts.jsonl`."""

    step: int
    """Number of the rollout batch, from 0."""
    id: str
    index: int
    """Among the completions of the problem in this step."""
    completion: str
    completion_ids: list[int]
    finish_reason: Literal["stop", "length"]
    reward: float
    """Reward, before any KL penalty."""
    correct: bool | None
    """The answer checker's verdict (the true reward); None: there is no gold answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollouts:
    """Completions of prompts; those of one prompt are a group, and groups may differ in size."""

    prompts: Sequence[Prompt]
    groups: list[int]
    """Number of each completion's prompt in `prompts`."""
    numbers: list[int]
    """Number of each completion among the samples of its prompt."""
    samples: list[Sample]
    texts: list[str]
    """The completions decoded, without special tokens."""

    def prompt(self, index: int) -> Prompt:
        """The prompt of a completion."""
        return self.prompts[self.groups[index]]

    def truncated(self) -> Flags:
        """True for completions that the length limit ended."""
        return torch.tensor([sample.finish_reason == "length" for sample in self.samples])

    def mask(self) -> Bool[Tensor, "batch token"]:
        """True at the tokens of each completion."""
        lengths = torch.tensor([len(sample.token_ids) for sample in self.samples])
        return torch.arange(int(lengths.max())) < lengths[:, None]

    def sampler_logprobs(self) -> Float[Tensor, "batch token"]:
        """Log-probs that the sampler reported; 0 outside `mask()`."""
        mask = self.mask()
        logprobs = [value for sample in self.samples for value in sample.logprobs]
        return torch.zeros(mask.shape).masked_scatter(mask, torch.tensor(logprobs))


@dataclass(frozen=True, kw_only=True, slots=True)
class RlModels:
    """The policy that is trained, its sampler, and the frozen and trained models beside it."""

    policy: Policy
    """Changed in place."""
    reference: Policy | None
    """Frozen, usually the initial policy; None: no KL is measured or penalised."""
    value: nn.Module | None = None
    """PPO's value model (`ScalarHead`), changed in place; None: without one."""
    sampler: Sampler
    """Samples from `policy` as its weights are at the time."""
    decode: Decode


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Prompts and the reward function."""

    prompts: Sequence[Prompt]
    reward: Callable[[Rollouts], CompletionRewards]
    """The reward of each completion: what is maximised."""
    correct: Callable[[Rollouts], list[bool]] | None
    """The answer checker's verdict on each completion: logged, and learned from only where the
    method says so (`positive_nll_coef`). None: prompts without gold answers."""

    def verdicts(self, rollouts: Rollouts) -> list[bool]:
        """The verdict on each completion; False without gold answers."""
        return [False] * len(rollouts.samples) if self.correct is None else self.correct(rollouts)


def sample_rollouts(
    sampler: Sampler,
    decode: Decode,
    prompts: Sequence[Prompt],
    *,
    config: RolloutConfig,
    group_size: int | None,
    step: int,
    seed: int,
) -> Rollouts:
    """Sample `group_size` completions of each prompt (None: the greedy one), prompt-major.

    The random stream of a completion is a function of (seed, step, prompt, sample).
    """
    num_samples = 1 if group_size is None else group_size
    groups = sampler.sample(
        [prompt.prompt_ids for prompt in prompts],
        [derive_seed(seed, "rollout", step, prompt.id) for prompt in prompts],
        num_samples=num_samples,
        temperature=0.0 if group_size is None else config.temperature,
        max_new_tokens=config.max_new_tokens,
    )
    samples = [sample for group in groups for sample in group]
    return Rollouts(
        prompts=prompts,
        groups=[i for i in range(len(prompts)) for _ in range(num_samples)],
        numbers=[j for _ in prompts for j in range(num_samples)],
        samples=samples,
        texts=[decode(sample.token_ids) for sample in samples],
    )


def join_rollouts(parts: Sequence[Rollouts]) -> Rollouts:
    """Rollout batch of all `parts`; completions of one prompt (by its id) become one group."""
    prompts = {prompt.id: prompt for part in parts for prompt in part.prompts}
    places = {prompt_id: place for place, prompt_id in enumerate(prompts)}
    return Rollouts(
        prompts=list(prompts.values()),
        groups=[places[part.prompts[i].id] for part in parts for i in part.groups],
        numbers=[number for part in parts for number in part.numbers],
        samples=[sample for part in parts for sample in part.samples],
        texts=[text for part in parts for text in part.texts],
    )


def make_batches(models: RlModels, rollouts: Rollouts, keep: Flags | None = None) -> list[Batch]:
    """Micro-batches of the completions where `keep` is True (None: all)."""
    groups = make_groups(rollouts, keep, models.policy.compute.row_tokens)
    return list(model_batches(models.policy, groups))


def make_groups(rollouts: Rollouts, keep: Flags | None, row_tokens: int) -> list[Group]:
    """The completions where `keep` is True (None: all), by prompt, in groups that fit a row."""
    members: dict[int, list[int]] = {}
    for index, place in enumerate(rollouts.groups):
        if keep is None or keep[index]:
            members.setdefault(place, []).append(index)
    groups: list[Group] = []
    for place, indices in sorted(members.items()):
        prompt_ids = rollouts.prompts[place].prompt_ids
        completions = [rollouts.samples[i].token_ids for i in indices]
        group = Group(prompt_ids=prompt_ids, completions=completions, indices=indices)
        groups += split_group(group, row_tokens)
    return groups


def check_truncation(rollouts: Rollouts, num_truncated_steps: int) -> int:
    """Number of steps in a row, this one included, in which every completion was truncated.

    A ValueError at `MAX_TRUNCATED_STEPS`; one may be chance where steps are small.
    """
    num_truncated_steps = num_truncated_steps + 1 if rollouts.truncated().all() else 0
    if num_truncated_steps == MAX_TRUNCATED_STEPS:
        raise ValueError(
            f"all completions of {num_truncated_steps} steps in a row were cut at the length "
            f"limit. Raise max_new_tokens, or start from a policy that has learned to end its "
            f"answers."
        )
    return num_truncated_steps


def check_sampler_gap(gap: float) -> None:
    """Refuse a mean absolute difference of sampler's and trainer's log-probs above rounding."""
    if gap > MAX_LOGPROB_GAP:
        raise ValueError(
            f"the sampler's log-probs differ from the trainer's by {gap:.3f} a token (rounding: at "
            f"most {MAX_LOGPROB_GAP}): the sampler has other weights, temperature or tokenizer"
        )


def make_rows(
    rollouts: Rollouts, step: int, rewards: Float[Tensor, " batch"], correct: Sequence[bool]
) -> list[Rollout]:
    """Records of a step's completions, for rollouts.jsonl."""
    return [
        Rollout(
            step=step,
            id=rollouts.prompt(i).id,
            index=rollouts.numbers[i],
            completion=rollouts.texts[i],
            completion_ids=sample.token_ids,
            finish_reason=sample.ending,
            reward=round(float(rewards[i]), 6),
            correct=None if rollouts.prompt(i).answer is None else correct[i],
        )
        for i, sample in enumerate(rollouts.samples)
    ]


def summarise_rollouts(
    rollouts: Rollouts, judged: CompletionRewards, correct: Sequence[bool] | None
) -> dict[str, float]:
    """Metrics of a step: reward and its components, accuracy, length, truncation, work.

    Without verdicts (`correct` None) there is no accuracy.
    """
    lengths, rewards = [len(sample.token_ids) for sample in rollouts.samples], judged.rewards()
    return {
        **judged.statistics(),
        "reward/mean": rewards.mean().item(),
        "reward/std": rewards.std(correction=0).item(),
        **({} if correct is None else {"reward/accuracy": sum(correct) / len(correct)}),
        "length/mean": sum(lengths) / len(lengths),
        "length/truncated": rollouts.truncated().float().mean().item(),
        "tokens/generated": float(sum(lengths)),
        **count_work(rollouts, judged),
    }


def count_work(rollouts: Rollouts, judged: CompletionRewards) -> dict[str, int]:
    """Forward passes that sampling and rewarding took (see `work`).

    The prompt of a group that grew over several calls of the sampler is counted once.
    """
    prompts = [prompt.prompt_ids for prompt in rollouts.prompts]
    completions = [sample.token_ids for sample in rollouts.samples]
    scored = work.scored(judged.metrics, len(completions))
    return scored | work.sampled(prompts, completions)
