"""Interface of reward functions: completions with their prompts in, rewards out."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn.functional import pad

from stages.own_modules import describe_error, exit_is_error, restored_settings
from stages.records.problems import Prompt
from stages.sampler import Judge, Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRewards:
    """Rewards of a batch of completions, in the order of the completions."""

    totals: Sequence[float]
    """Reward at the last token of each completion."""
    parts: dict[str, list[float]] = field(default_factory=dict)
    """Component -> its value for each completion, before cap, normalisation and weight: only
    logged."""
    step_rewards: Float[Tensor, "batch token"] | None = None
    """Additional rewards at the last token of each step; 0 at all other tokens. Columns are those
    of `Rollouts.mask()`. None: no steps."""
    step_ends: Bool[Tensor, "batch token"] | None = None
    """True at the last token of each step, even if its reward is 0. None if and only if
    `step_rewards` is None."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Further numbers to log, each a mean over the completions."""

    def __post_init__(self) -> None:
        if (self.step_rewards is None) != (self.step_ends is None):
            raise ValueError("expected step_rewards and step_ends together, found one of them")

    def rewards(self) -> Float[Tensor, " batch"]:
        """Sum of the rewards of each completion, at its end and at its steps."""
        totals = torch.tensor(self.totals, dtype=torch.float32)
        return totals if self.step_rewards is None else totals + self.step_rewards.sum(1)

    def statistics(self) -> dict[str, float]:
        """Mean of each part as `reward/<name>`, and `metrics`."""
        means = {f"reward/{name}": sum(part) / len(part) for name, part in self.parts.items()}
        return means | self.metrics


def join_rewards(batches: Sequence[CompletionRewards]) -> CompletionRewards:
    """Rewards of all completions of `batches`, in order; all are by the same reward function."""
    total = sum(len(batch.totals) for batch in batches)
    return CompletionRewards(
        totals=[value for batch in batches for value in batch.totals],
        parts={
            name: [value for batch in batches for value in batch.parts[name]]
            for name in batches[0].parts
        },
        step_rewards=_stack_grids([batch.step_rewards for batch in batches]),
        step_ends=_stack_grids([batch.step_ends for batch in batches]),
        metrics={
            name: sum(batch.metrics[name] * len(batch.totals) for batch in batches) / total
            for name in batches[0].metrics
        },
    )


def _stack_grids(
    optional_grids: Sequence[Shaped[Tensor, "_ _"] | None],
) -> Shaped[Tensor, "batch token"] | None:
    """Grids concatenated along the batch, padded on the right; None if there are none."""
    grids = [grid for grid in optional_grids if grid is not None]
    longest = max((grid.shape[1] for grid in grids), default=0)
    return torch.cat([pad(grid, (0, longest - grid.shape[1])) for grid in grids]) if grids else None


@runtime_checkable
class Completions(Protocol):
    """Completions with their prompts, in the same order."""

    @property
    def texts(self) -> Sequence[str]:
        """Completions as decoded text, without special tokens."""
        ...

    @property
    def samples(self) -> Sequence[Sample]:
        """Completions as sampled tokens."""
        ...

    @property
    def groups(self) -> Sequence[int]:
        """Number of each completion's prompt."""
        ...

    def prompt(self, index: int) -> Prompt:
        """Prompt of a completion."""
        ...


@dataclass(frozen=True, kw_only=True)
class RewardModels:
    """Models that reward components may use, by the names of their parameters; None: absent."""

    scorer: Callable[[], CompletionRewards] | None = None
    """Reward model applied to these completions: a score for each, a reward per step, or both."""
    judge: Judge | None = None
    """Policy as judge, if that is the reward's model: it chooses between two answers."""
    function: Callable[[Prompt, str], float] | None = None
    """User's reward: `reward` of the row's file in stages/rewards/own/."""
    max_new_tokens: int
    """Length limit of completions, in tokens."""

    def need_function(self) -> Callable[[Prompt, str], float]:
        """User's reward; a ValueError if there is none."""
        if self.function is None:
            raise ValueError("it needs a function: name its file, `on: own/<file>`")
        return self.function


MAX_SHOWN, MAX_PROMPT_SHOWN = 2000, 80
"""Number of characters of a completion, and of the end of its prompt, in an error message."""


@restored_settings()
def score_each(
    completions: Completions, value: Callable[[Prompt, str], float]
) -> CompletionRewards:
    """Rewards by `value`; a ValueError names the completion for which it returned no number."""
    totals: list[float] = []
    for index, text in enumerate(completions.texts):
        try:
            with exit_is_error():  # a completion's code that a reward runs may call `exit`
                result = value(completions.prompt(index), text)
        except Exception as error:
            what = describe_error(error)
            raise ValueError(f"{what}, on {describe_completion(completions, index)}") from error
        try:
            totals.append(float(result))
        except Exception as error:
            raise ValueError(
                f"expected a number for each completion, found {result!r:.80}, on "
                f"{describe_completion(completions, index)}"
            ) from error
    return CompletionRewards(totals=totals)


def check_finite(rewards: CompletionRewards, completions: Completions, what: str) -> None:
    """Raise a ValueError if a reward is NaN or infinite; it names the first such completion."""
    for index, reward in enumerate(rewards.rewards().tolist()):
        if not math.isfinite(reward):
            text = describe_completion(completions, index)
            raise ValueError(f"{what}: expected a finite number, found {reward}, on {text}")


def describe_completion(completions: Completions, index: int) -> str:
    """Description of a completion in an error: its text, and id and last words of its prompt."""
    text, prompt = completions.texts[index], completions.prompt(index)
    omitted = f" and {len(text) - MAX_SHOWN} characters more" if len(text) > MAX_SHOWN else ""
    shown = f"{text[:MAX_SHOWN]!r}{omitted}, after {prompt.prompt[-MAX_PROMPT_SHOWN:]!r}"
    return f"completion {index}, of prompt '{prompt.id}': {shown}"
