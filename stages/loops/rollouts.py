"""Rollouts: completions that a policy samples in training; the models and the task of the loop.

In an environment a rollout is an episode of several turns (`loops/episodes`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from pydantic import Field, TypeAdapter
from torch import Tensor, nn

from stages.config import Params
from stages.loops import work
from stages.models.batch import Batch, Group, model_batches, split_group
from stages.models.policy import Policy
from stages.records.episodes import FAILED, Ending, Episode, summarise_episodes
from stages.records.lines import to_dict
from stages.records.problems import OMITTED, Prompt
from stages.rewards.completion_rewards import CompletionRewards
from stages.sampler import Sample, Sampler
from stages.seeding import derive_seed

# Differences by rounding are a hundred times smaller in the mean.
MAX_LOGPROB_GAP = 0.05
MAX_TRUNCATED_STEPS = 3
Flags = Bool[Tensor, " batch"]
Decode = Callable[[Sequence[int]], str]
"""Tokens to text without special tokens."""


class RolloutConfig(Params):
    """Sampling of completions."""

    temperature: float = Field(gt=0)
    """Divides the logits, in sampling and in all log-probabilities of the sampled tokens."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion, in tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """Completion that training sampled: a row of `rollouts.jsonl`."""

    step: int
    """Number of the rollout batch, from 0."""
    id: str
    index: int
    """Number among the completions of the problem in this step."""
    completion: str
    completion_ids: list[int]
    finish_reason: Literal["stop", "length"]
    reward: float
    """Reward, before any KL penalty."""
    correct: bool | None
    """The answer checker's verdict (the true reward), or an episode's success; None: no gold
    answer."""
    episode: dict[str, Any] | None = field(default=None, metadata={OMITTED: True})
    """Fields of the `Episode`, whose part after the start is the completion; `reward` and
    `completion_ids` are those of its sampled tokens. None: no environment."""


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
    episodes: Sequence[Episode] | None = None
    """Episodes of the completions; None: no environment."""

    def prompt(self, index: int) -> Prompt:
        """The prompt of a completion."""
        return self.prompts[self.groups[index]]

    def truncated(self) -> Flags:
        """True for completions that the length limit ended."""
        return torch.tensor([sample.finish_reason == "length" for sample in self.samples])

    def failed(self) -> Flags:
        """True for episodes in which the environment failed: nothing is learned from them."""
        if self.episodes is None:
            return torch.zeros(len(self.samples), dtype=torch.bool)
        return torch.tensor([episode.ending == FAILED for episode in self.episodes])

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
    """Trained policy, its sampler, and the frozen and trained models beside it."""

    policy: Policy
    """Changed in place."""
    reference: Policy | None
    """Frozen, usually the initial policy; None: no KL is measured or penalised."""
    teacher: Policy | None = None
    """Frozen; its log-probs are those of advantage `teacher`. None: without a teacher."""
    value: nn.Module | None = None
    """PPO's value model (`ScalarHead`), changed in place; None: without a value model."""
    sampler: Sampler
    """Samples from `policy` with its weights at the time of the call."""
    decode: Decode


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
    """`group_size` completions of each prompt (None: the greedy one), prompt-major.

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


Draw = Callable[..., Rollouts]
"""Function that samples rollouts of prompts with a policy, called as `sample_rollouts` is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Task of reinforcement learning: prompts, reward function and answer checker."""

    prompts: Sequence[Prompt]
    reward: Callable[[Rollouts], CompletionRewards]
    """Reward of each completion, which is maximised."""
    check_answers: Callable[[Rollouts], list[bool]] | None
    """The answer checker's verdict on each completion: logged, and learned from only if the method
    says so (`positive_nll_coef`). None: prompts without gold answers."""
    teacher_prompts: Mapping[str, Sequence[int]] | None = None
    """Tokens that the teacher reads in place of a prompt, by the prompt's id; None: the same."""
    draw: Draw = sample_rollouts
    """Samples completions of prompts; of `episodes.make_task`, plays episodes from them."""

    def verdicts(self, rollouts: Rollouts) -> list[bool]:
        """The verdict on each completion; False without gold answers."""
        if self.check_answers is None:
            return [False] * len(rollouts.samples)
        return self.check_answers(rollouts)


STORED = TypeAdapter(Rollouts)
"""Converter of rollouts to JSON content (`dump_python`) and back to the bit (`validate_python`)."""


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
        episodes=None
        if any(part.episodes is None for part in parts)
        else [episode for part in parts for episode in part.episodes or ()],
    )


def make_batches(models: RlModels, rollouts: Rollouts, keep: Flags | None = None) -> list[Batch]:
    """Micro-batches of the completions whose `keep` is True (None: all)."""
    groups = make_groups(rollouts, keep, models.policy.compute.row_tokens)
    return list(model_batches(models.policy, groups))


def make_groups(rollouts: Rollouts, keep: Flags | None, row_tokens: int) -> list[Group]:
    """Groups of the completions whose `keep` is True (None: all), by prompt, that fit a row.

    An episode whose environment did not start has no token, and is in no group.
    """
    members: dict[int, list[int]] = {}
    for index, place in enumerate(rollouts.groups):
        if (keep is None or keep[index]) and rollouts.samples[index].token_ids:
            members.setdefault(place, []).append(index)
    groups: list[Group] = []
    for place, indices in sorted(members.items()):
        prompt_ids = rollouts.prompts[place].prompt_ids
        samples = [rollouts.samples[i] for i in indices]
        group = Group(
            prompt_ids=prompt_ids,
            completions=[sample.token_ids for sample in samples],
            indices=indices,
            insertions=[sample.insertions for sample in samples],
        )
        groups += split_group(group, row_tokens)
    return groups


def count_truncated_steps(rollouts: Rollouts, num_truncated_steps: int) -> int:
    """Number of consecutive steps, this one included, in which every completion was truncated.

    A ValueError at `MAX_TRUNCATED_STEPS`; fewer may be chance if steps are small.
    """
    counted = rollouts.truncated()[~rollouts.failed()]
    num_truncated_steps = num_truncated_steps + 1 if counted.all() else 0
    if num_truncated_steps == MAX_TRUNCATED_STEPS:
        what, limits = "completions", "max_new_tokens"
        if rollouts.episodes is not None:
            what, limits = "episodes", "max_turn_tokens or max_tokens of the environment"
        raise ValueError(
            f"all {what} of {num_truncated_steps} steps in a row were truncated at the length "
            f"limit. Raise {limits}, or start from a policy that has learned to end its "
            f"answers."
        )
    return num_truncated_steps


def check_sampler_gap(gap: float) -> None:
    """Raise a ValueError if sampler's and trainer's log-probs differ by more than rounding.

    `gap`: mean absolute difference per token.
    """
    if gap > MAX_LOGPROB_GAP:
        raise ValueError(
            f"the sampler's log-probs differ from the trainer's by {gap:.3f} per token "
            f"(rounding: at most {MAX_LOGPROB_GAP}): the sampler has other weights, temperature or "
            f"tokenizer"
        )


def make_rows(
    rollouts: Rollouts, step: int, rewards: Float[Tensor, " batch"],
    verdicts: Sequence[bool] | None,
) -> list[Rollout]:  # fmt: skip
    """Records of a step's completions, for rollouts.jsonl; without `verdicts` none was checked."""
    return [
        Rollout(
            step=step,
            id=rollouts.prompt(i).id,
            index=rollouts.numbers[i],
            completion=rollouts.texts[i],
            completion_ids=sample.token_ids,
            finish_reason=sample.ending,
            reward=round(float(rewards[i]), 6),
            correct=None
            if verdicts is None or (rollouts.prompt(i).answer is None and rollouts.episodes is None)
            else verdicts[i],
            episode=None if rollouts.episodes is None else to_dict(rollouts.episodes[i]),
        )
        for i, sample in enumerate(rollouts.samples)
    ]


def summarise_rollouts(
    rollouts: Rollouts, rewards: CompletionRewards, verdicts: Sequence[bool] | None
) -> dict[str, float]:
    """Metrics of a step: reward and its components, accuracy, length, truncation, work.

    Without `verdicts` there is no accuracy. Means leave out episodes that failed.
    """
    counted = ~rollouts.failed()
    totals, mask = rewards.rewards()[counted], rollouts.mask()
    lengths = mask.sum(1)[counted].tolist()
    accuracy: dict[str, float] = {}
    if verdicts is not None:
        right = [verdicts[i] for i in counted.nonzero().flatten().tolist()]
        accuracy = {"reward/accuracy": sum(right) / len(right)}
    return {
        **rewards.statistics(),
        "reward/mean": totals.mean().item(),
        "reward/std": totals.std(correction=0).item(),
        **accuracy,
        "length/mean": sum(lengths) / len(lengths),
        "length/truncated": rollouts.truncated()[counted].float().mean().item(),
        "tokens/generated": float(mask.sum()),
        **count_work(rollouts, rewards),
        **list_episode_metrics(rollouts.episodes or ()),
    }


def list_episode_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Metrics of a step's episodes: some of `summarise_episodes`, and the share of every ending."""
    if not episodes:
        return {}
    summary = summarise_episodes(episodes)
    endings = [ending for ending in get_args(Ending) if ending != FAILED]
    return {
        **{
            f"episode/{name}": summary[name]
            for name in ("turns", "tool_calls", "tool_errors", "success", "failed")
        },
        **{f"ending/{ending}": summary["endings"].get(ending, 0.0) for ending in endings},
    }


def count_tool_calls(messages: Sequence[Mapping[str, Any]]) -> int:
    """Number of calls of tools in messages."""
    return sum(len(message.get("tool_calls") or ()) for message in messages)


def count_work(rollouts: Rollouts, rewards: CompletionRewards) -> dict[str, int]:
    """Forward passes of sampling and of the reward's model (see `work`).

    The prompt of a group counts once, even if several calls of the sampler drew the group. So does
    every token of an episode, since a sampler caches earlier turns.
    """
    prompts = [prompt.prompt_ids for prompt in rollouts.prompts]
    samples = [sample for sample in rollouts.samples if sample.token_ids]
    scored = work.count_scoring(rewards.metrics, len(rollouts.samples))
    num_inserted = sum(len(ids) for sample in samples for _, ids in sample.insertions)
    completions = [sample.token_ids for sample in samples]
    return scored | work.count_sampling(prompts, completions, num_inserted)
