"""Batches of row numbers: epochs, shuffles, and a budget of tokens."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field

from stages.config import Params
from stages.optim import OptimConfig
from stages.seeding import derive_seed


class EpochsConfig(Params):
    """Epochs, batch size and optimizer of a loop over rows; each loop says what a row is."""

    num_epochs: int = Field(gt=0)
    """Passes over the rows; a reward model overfits after a few."""
    batch_size: int = Field(gt=0)
    """Rows in an optimizer step."""
    optim: OptimConfig


def batches(num_rows: int, num_epochs: int, batch_size: int, seed: int) -> list[list[int]]:
    """Row numbers of each optimizer step: every row once per epoch, each freshly shuffled.

    The last batch of an epoch may be smaller.
    """
    per_epoch = -(-num_rows // batch_size)
    return list(itertools.islice(_passes(num_rows, batch_size, seed), num_epochs * per_epoch))


def batches_within(
    lengths: Sequence[int], token_budget: int, batch_size: int, seed: int
) -> list[list[int]]:
    """Row numbers of the steps until a token budget is spent; the step that does so is the last.

    The number of steps is known before the first one, so the learning rate's schedule ends with the
    budget. `lengths`: tokens of each row that go through a backward pass; not all 0.
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
    """Endless batches, epoch after epoch."""
    for epoch in itertools.count():
        order = np.random.default_rng(derive_seed(seed, "epoch", epoch)).permutation(num_rows)
        for start in range(0, num_rows, batch_size):
            yield order[start : start + batch_size].tolist()


def endless_batches(num_rows: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Endless full batches of row numbers, from shuffled passes over the rows.

    No row is twice in a batch. The last rows of a pass are filled up to a batch with the first rows
    of the next pass that are not among them.
    """
    if num_rows < batch_size:
        raise ValueError(
            f"a step may need {batch_size} prompts, there are {num_rows} to learn from: "
            f"lower prompts_per_step, or add prompts"
        )
    pending: list[int] = []
    for epoch in itertools.count():
        order = np.random.default_rng(derive_seed(seed, "epoch", epoch)).permutation(num_rows)
        # Rows that are pending from the last pass come last in this one.
        pending += sorted(order.tolist(), key=set(pending).__contains__)
        while len(pending) >= batch_size:
            yield pending[:batch_size]
            pending = pending[batch_size:]
