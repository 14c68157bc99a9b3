"""Reinforcement learning's policy and task, and the completions that are sampled for a step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from stages.loops import work
from stages.models.batch import Batch, Group, model_batches, split_group
from stages.models.policy import Policy
from stages.params import Params
from stages.records.pools import Rollout
from stages.records.problems import Prompt
from stages.rewards.judged import Judged
from stages.sampler import Sample, Sampler
from stages.seeding import derive

# Rounding stays a hundred times below this gap in the mean.
MAX_LOGPROB_GAP = 0.05
MAX_CUT_STEPS = 3
Flags = Bool[Tensor, " batch"]
Decode = Callable[[Sequence[int]], str]
"""Tokens to text without special tokens."""


class DrawingConfig(Params):
    """How completions are drawn."""

    temperature: float = Field(gt=0)
    """Of sampling, and of every log-probability of what is learned from."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollouts:
    """Completions of prompts, in groups that may differ in size."""

    prompts: Sequence[Prompt]
    groups: list[int]
    """Of each completion, the number of its prompt."""
    numbers: list[int]
    """Of each completion, which sample of its prompt it is."""
    samples: list[Sample]
    texts: list[str]
    """The completions decoded, without special tokens."""

    def prompt(self, index: int) -> Prompt:
        """The prompt of a completion."""
        return self.prompts[self.groups[index]]

    def truncated(self) -> Flags:
        """Which completions were cut at the length limit."""
        return torch.tensor([sample.finish_reason == "length" for sample in self.samples])

    def mask(self) -> Bool[Tensor, "batch token"]:
        """True at the tokens of each completion."""
        lengths = torch.tensor([len(sample.token_ids) for sample in self.samples])
        return torch.arange(int(lengths.max())) < lengths[:, None]

    def sampler_logprobs(self) -> Float[Tensor, "batch token"]:
        """What the sampler reported; 0 outside `mask()`."""
        mask = self.mask()
        reported = [value for sample in self.samples for value in sample.logprobs]
        return torch.zeros(mask.shape).masked_scatter(mask, torch.tensor(reported))


@dataclass(frozen=True, kw_only=True, slots=True)
class RlModels:
    """The policy that is trained, its sampler, and the frozen and trained models beside it."""

    policy: Policy
    """Changed in place."""
    reference: Policy | None
    """Frozen, usually the policy at its start; None: no divergence is measured or penalised."""
    value: nn.Module | None = None
    """PPO's value model (`ScalarHead`), changed in place; None: without one."""
    sampler: Sampler
    """Samples from `policy` as its weights are at the time."""
    decode: Decode


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Prompts, and what an answer is worth."""

    prompts: Sequence[Prompt]
    reward: Callable[[Rollouts], Judged]
    """What is maximised, for each completion."""
    correct: Callable[[Rollouts], list[bool]] | None
    """The true verdict: logged; learned from only where the preset says so. None: there is none."""

    def verdicts(self, rollouts: Rollouts) -> list[bool]:
        """The verdict on each completion; where there is none, it is never right."""
        return [False] * len(rollouts.samples) if self.correct is None else self.correct(rollouts)


def collect(
    sampler: Sampler,
    decode: Decode,
    prompts: Sequence[Prompt],
    *,
    config: DrawingConfig,
    step: int,
    seed: int,
    group_size: int,
    greedy: bool = False,
) -> Rollouts:
    """`group_size` completions of each prompt, or the greedy one, prompt-major.

    Their streams depend on (seed, step, prompt, sample).
    """
    drawn = sampler.sample(
        [prompt.prompt_ids for prompt in prompts],
        [derive(seed, "rollout", step, prompt.id) for prompt in prompts],
        num_samples=group_size,
        temperature=0.0 if greedy else config.temperature,
        max_new_tokens=config.max_new_tokens,
    )
    samples = [sample for group in drawn for sample in group]
    return Rollouts(
        prompts=prompts,
        groups=[i for i in range(len(prompts)) for _ in range(group_size)],
        numbers=[j for _ in prompts for j in range(group_size)],
        samples=samples,
        texts=[decode(sample.token_ids) for sample in samples],
    )


def join(parts: Sequence[Rollouts]) -> Rollouts:
    """The completions of all parts; those of one prompt (by its id) are one group."""
    prompts = {prompt.id: prompt for part in parts for prompt in part.prompts}
    places = {name: place for place, name in enumerate(prompts)}
    return Rollouts(
        prompts=list(prompts.values()),
        groups=[places[part.prompts[i].id] for part in parts for i in part.groups],
        numbers=[number for part in parts for number in part.numbers],
        samples=[sample for part in parts for sample in part.samples],
        texts=[text for part in parts for text in part.texts],
    )


def batches(models: RlModels, rollouts: Rollouts, keep: Flags | None = None) -> list[Batch]:
    """The kept completions (None: all) as micro-batches."""
    groups = batch_groups(rollouts, keep, models.policy.compute.row_tokens)
    return list(model_batches(models.policy, groups))


def batch_groups(rollouts: Rollouts, keep: Flags | None, row_tokens: int) -> list[Group]:
    """The kept completions (None: all), those of a prompt together, in groups that fit a row."""
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


def check_some_ended(rollouts: Rollouts, num_cut_steps: int) -> int:
    """How many steps in a row, this one included, had no completion that ended.

    `MAX_CUT_STEPS` in a row are refused; one may be chance where steps are small.
    """
    num_cut_steps = num_cut_steps + 1 if rollouts.truncated().all() else 0
    if num_cut_steps == MAX_CUT_STEPS:
        raise ValueError(
            f"all completions of {num_cut_steps} steps in a row were cut at the length limit. "
            f"Raise max_new_tokens, or start from a policy that has learned to end its answers."
        )
    return num_cut_steps


def check_sampler(gap: float) -> None:
    """Stop when the mean absolute difference of sampler's and trainer's log-probs is too large."""
    if gap > MAX_LOGPROB_GAP:
        raise ValueError(
            f"the sampler's log-probs differ from the trainer's by {gap:.3f} a token (rounding: at "
            f"most {MAX_LOGPROB_GAP}): the sampler has other weights, temperature or tokenizer"
        )


def rows(
    rollouts: Rollouts, step: int, rewards: Float[Tensor, " batch"], correct: Sequence[bool]
) -> list[Rollout]:
    """The step's completions as records."""
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


def statistics(
    rollouts: Rollouts, judged: Judged, correct: Sequence[bool] | None
) -> dict[str, float]:
    """Reward and its parts, true accuracy, length and truncation of a step's completions.

    `correct` is None where there are no verdicts, and then no accuracy.
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
        **work_done(rollouts, judged),
    }


def work_done(rollouts: Rollouts, judged: Judged) -> dict[str, int]:
    """What it took to sample and to judge the completions (see `work`).

    The prompt of a group that grew over several calls of the sampler is counted once.
    """
    prompts = [prompt.prompt_ids for prompt in rollouts.prompts]
    completions = [sample.token_ids for sample in rollouts.samples]
    scored = work.scored(judged.metrics, len(completions))
    return scored | work.sampled(prompts, completions)
