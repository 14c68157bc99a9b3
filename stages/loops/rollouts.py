"""Completions sampled from the policy for one reinforcement-learning step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.masking import masked_sum
from stages.models.batch import Batch, Group, split_group
from stages.records.prompt import Prompt
from stages.records.rollout import Rollout
from stages.sampler import Sample, Sampler
from stages.seeding import derive

# A gap this large in the mean means that sampler and trainer see different weights,
# temperatures or templates: rounding stays a hundred times below it.
MAX_LOGPROB_GAP = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollouts:
    """Prompt-major: completion `i * group_size + j` is sample j of prompt i."""

    prompts: Sequence[Prompt]
    group_size: int
    samples: list[Sample]
    texts: list[str]
    """The completions decoded, without special tokens."""

    def prompt(self, index: int) -> Prompt:
        """The prompt of a completion."""
        return self.prompts[index // self.group_size]


def collect(
    sampler: Sampler,
    decode: Callable[[Sequence[int]], str],
    prompts: Sequence[Prompt],
    *,
    step: int,
    seed: int,
    group_size: int,
    temperature: float,
    max_new_tokens: int,
) -> Rollouts:
    """`group_size` completions of each prompt; streams depend on (seed, step, prompt, sample)."""
    drawn = sampler.sample(
        [prompt.prompt_ids for prompt in prompts],
        [derive(seed, "rollout", step, prompt.id) for prompt in prompts],
        num_samples=group_size,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
    )
    samples = [sample for group in drawn for sample in group]
    return Rollouts(
        prompts=prompts,
        group_size=group_size,
        samples=samples,
        texts=[decode(sample.token_ids) for sample in samples],
    )


def groups(rollouts: Rollouts, keep: Bool[Tensor, " prompt"], row_tokens: int) -> list[Group]:
    """The completions of the kept prompts, in groups that fit a row."""
    size = rollouts.group_size
    return [
        part
        for i, prompt in enumerate(rollouts.prompts)
        if keep[i]
        for part in split_group(
            Group(
                prompt_ids=prompt.prompt_ids,
                completions=[s.token_ids for s in rollouts.samples[i * size : (i + 1) * size]],
                indices=range(i * size, (i + 1) * size),
            ),
            row_tokens,
        )
    ]


def sampler_logprobs(rollouts: Rollouts, batch: Batch) -> Float[Tensor, "batch token"]:
    """What the sampler reported, laid out as `batch.mask`; 0 elsewhere."""
    grid = torch.zeros(batch.mask.shape)
    for row, index in enumerate(batch.indices):
        reported = rollouts.samples[index].logprobs
        grid[row, : len(reported)] = torch.tensor(reported)
    return grid.to(batch.mask.device)


def check_sampler(gap: float) -> None:
    """Stop when the sampler's log-probs are not the trainer's.

    Raises:
        ValueError: the mean absolute difference of a step is too large.
    """
    if gap > MAX_LOGPROB_GAP:
        raise ValueError(
            f"the sampler's log-probs differ from the trainer's by {gap:.3f} a token in the mean "
            f"(at most {MAX_LOGPROB_GAP} is rounding): the sampler has other weights, another "
            f"temperature, or another tokenizer than the policy."
        )


def sampler_gap(
    rollouts: Rollouts, batches: Sequence[Batch], old_logprobs: Sequence[Float[Tensor, "_ _"]]
) -> float:
    """Mean absolute difference a token between the sampler's and the trainer's log-probs, checked.

    Raises:
        ValueError: see `check_sampler`.
    """
    total = sum(
        masked_sum((sampler_logprobs(rollouts, batch) - old).abs(), batch.mask).item()
        for batch, old in zip(batches, old_logprobs, strict=True)
    )
    gap = total / max(1, sum(int(batch.mask.sum()) for batch in batches))
    check_sampler(gap)
    return gap


def rows(
    rollouts: Rollouts, step: int, rewards: Float[Tensor, " batch"], correct: Sequence[bool]
) -> list[Rollout]:
    """The step's completions as records."""
    return [
        Rollout(
            step=step,
            id=rollouts.prompt(i).id,
            index=i % rollouts.group_size,
            completion=rollouts.texts[i],
            completion_ids=sample.token_ids,
            finish_reason=sample.finish_reason,
            reward=round(float(rewards[i]), 6),
            correct=correct[i],
        )
        for i, sample in enumerate(rollouts.samples)
    ]


def statistics(
    rollouts: Rollouts, rewards: Float[Tensor, " batch"], correct: Sequence[bool]
) -> dict[str, float]:
    """Reward, true accuracy, length and truncation of a step's completions."""
    lengths = [len(sample.token_ids) for sample in rollouts.samples]
    cut = [sample.finish_reason == "length" for sample in rollouts.samples]
    return {
        "reward/mean": rewards.mean().item(),
        "reward/std": rewards.std(correction=0).item(),
        "reward/accuracy": sum(correct) / len(correct),
        "length/mean": sum(lengths) / len(lengths),
        "length/truncated": sum(cut) / len(cut),
        "tokens/generated": float(sum(lengths)),
    }
