"""How far a run of reinforcement learning goes: a number of steps, or a budget of tokens."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stages.loops import epochs


@dataclass(frozen=True, kw_only=True, slots=True)
class Budgeted:
    """Prompt numbers of each step, without an end, and when to end."""

    batches: Iterable[Sequence[int]]
    tokens: int
    """After the step with which so many are generated and trained on, training ends."""

    def __iter__(self) -> Iterator[Sequence[int]]:
        return iter(self.batches)


Schedule = Sequence[Sequence[int]] | Budgeted
"""Prompt numbers of each step."""


def draw(
    num_prompts: int, num_steps: int, batch_size: int, seed: int, token_budget: int | None
) -> Schedule:
    """`num_steps` batches of prompts; with a budget, as many as it takes, the same at first."""
    if token_budget is None:
        return epochs.draws(num_prompts, num_steps, batch_size, seed)
    return Budgeted(
        batches=epochs.endless(num_prompts, batch_size, seed),
        tokens=token_budget,
    )


def length(schedule: Schedule) -> int | None:
    """The number of steps; None where a budget decides."""
    return None if isinstance(schedule, Budgeted) else len(schedule)


@dataclass(kw_only=True, slots=True)
class Pace:
    """How far a run has come: what its learning rate follows, and what ends it.

    Of a list of S steps, S are planned and taken. With a budget, S is not known beforehand, since
    completions change their length: the rate then follows the share of the budget that is spent in
    place of the share of the steps. After step i, from 0, with `spent` tokens,

        S = (i + 1) budget / spent

    steps like those so far spend the budget, so (i + 1) / S is that share: a warm-up of 5 % lasts
    for 5 % of the tokens, and a rate that falls to 0 gets there as the last are spent.
    """

    schedule: Schedule
    spent: int = 0

    def spend(self, metrics: Mapping[str, int | float]) -> None:
        """Count a step's tokens, those generated and those that it will learn from."""
        self.spent += int(metrics["tokens/generated"]) + int(metrics["tokens/trained"])

    def num_updates(self, index: int, per_step: int) -> int:
        """Optimizer steps in the whole run, as it looks when step `index` has been counted."""
        if not isinstance(self.schedule, Budgeted):
            return len(self.schedule) * per_step
        planned = round((index + 1) * per_step * self.schedule.tokens / self.spent)
        # The step that goes over the budget is the last.
        return max(planned, (index + 1) * per_step)

    def over(self) -> bool:
        """Whether there was a budget and it is spent."""
        return isinstance(self.schedule, Budgeted) and self.spent >= self.schedule.tokens
