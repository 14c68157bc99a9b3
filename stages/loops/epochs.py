"""The order in which rows are visited, and how far a run goes: steps, or a budget of tokens."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from stages.optim import OptimConfig
from stages.params import Params
from stages.seeding import derive


class EpochsConfig(Params):
    """How often and how fast rows are learned from; each loop says what a row is."""

    num_epochs: int = Field(gt=0)
    """Passes over the rows; of a reward model, more than a few overfit."""
    batch_size: int = Field(gt=0)
    """Rows in an optimizer step."""
    optim: OptimConfig


def batches(num_rows: int, num_epochs: int, batch_size: int, seed: int) -> list[list[int]]:
    """Row numbers of each optimizer step: every row once an epoch, a fresh shuffle each.

    The last, smaller batch of an epoch is kept.
    """
    per_epoch = -(-num_rows // batch_size)
    return list(itertools.islice(_passes(num_rows, batch_size, seed), num_epochs * per_epoch))


def batches_within(
    lengths: Sequence[int], token_budget: int, batch_size: int, seed: int
) -> list[list[int]]:
    """As many steps of `batches` as it takes to spend the budget; the one that does is the last.

    All is known before the first, so the learning rate's schedule ends with the budget.
    `lengths`: tokens of each row that go through a backward pass; not all 0.
    """
    assert token_budget > 0 and any(lengths), (token_budget, len(lengths))  # noqa: PT018
    steps, spent = [], 0
    for rows in _passes(len(lengths), batch_size, seed):
        steps.append(rows)
        spent += sum(lengths[row] for row in rows)
        if spent >= token_budget:
            break
    return steps


def _passes(num_rows: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Batches of one epoch after the other, without an end."""
    for epoch in itertools.count():
        order = np.random.default_rng(derive(seed, "epoch", epoch)).permutation(num_rows)
        for start in range(0, num_rows, batch_size):
            yield order[start : start + batch_size].tolist()


def endless(num_rows: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Row numbers of full batches without an end, drawn from shuffled passes over the rows.

    No row is twice in a batch: at the end of a pass the rows that are left fill a batch
    with the first others of the next pass.
    """
    if num_rows < batch_size:
        raise ValueError(
            f"a step may need {batch_size} prompts, the split train has {num_rows}: lower "
            f"prompts_per_step, or prepare more problems"
        )
    left: list[int] = []
    for epoch in itertools.count():
        order = np.random.default_rng(derive(seed, "epoch", epoch)).permutation(num_rows)
        # Rows still to come of the last pass go to the end of this one.
        left += sorted(order.tolist(), key=set(left).__contains__)
        while len(left) >= batch_size:
            yield left[:batch_size]
            left = left[batch_size:]


@dataclass(kw_only=True, slots=True)
class Pace:
    """How far a run has come: what its learning rate follows, and what ends it.

    Without a budget of tokens, the S steps of `num_steps` are taken. With one, S is not known
    beforehand, since completions change their length: after step i, from 0, with `spent` tokens,

        S = (i + 1) budget / spent

    so the rate follows (i + 1) / S, the share of the budget that is spent: a warm-up of 5 % lasts
    for 5 % of the tokens, and a rate that falls to 0 gets there as the last are spent.
    """

    num_steps: int
    budget: int | None
    """Training ends with the step that reaches so many tokens, generated and trained on."""
    spent: int = 0

    def spend(self, metrics: Mapping[str, int | float]) -> None:
        """Count a step's tokens, those generated and those that it will learn from."""
        self.spent += int(metrics["tokens/generated"]) + int(metrics["tokens/trained"])

    def num_updates(self, index: int, per_step: int) -> int:
        """Optimizer steps in the whole run, as it looks when step `index` has been counted."""
        if self.budget is None:
            return self.num_steps * per_step
        planned = round((index + 1) * per_step * self.budget / self.spent)
        # The step that goes over the budget is the last.
        return max(planned, (index + 1) * per_step)

    def over(self) -> bool:
        """Whether there was a budget and it is spent."""
        return self.budget is not None and self.spent >= self.budget
