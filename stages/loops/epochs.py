"""The order in which rows are visited, known before the first step."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from stages.seeding import derive


def batches(num_rows: int, num_epochs: int, batch_size: int, seed: int) -> list[list[int]]:
    """Row numbers of each optimizer step: every row once an epoch, a fresh shuffle each.

    The last, smaller batch of an epoch is kept.
    """
    per_epoch = -(-num_rows // batch_size)
    return list(itertools.islice(_passes(num_rows, batch_size, seed), num_epochs * per_epoch))


def batches_within(
    lengths: Sequence[int], token_budget: int, batch_size: int, seed: int
) -> list[list[int]]:
    """The beginning of as many epochs of `batches` as it takes to spend the budget.

    The step that reaches the budget is the last. All is known before the first, so the learning
    rate's schedule ends with the budget.

    Args:
        lengths: tokens of each row that go through a backward pass; not all 0.
        token_budget: at least 1.
        batch_size: rows in a step.
        seed: of the shuffles; the steps are those of `batches`.
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


def draws(num_rows: int, num_steps: int, batch_size: int, seed: int) -> list[list[int]]:
    """The first `num_steps` batches of `endless`."""
    return list(itertools.islice(endless(num_rows, batch_size, seed), num_steps))


def endless(num_rows: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Row numbers of full batches without an end, drawn from shuffled passes over the rows.

    No row is twice in a batch: at the end of a pass the rows that are left fill a batch
    with the first others of the next pass.

    Raises:
        ValueError: fewer rows than a batch needs.
    """
    if num_rows < batch_size:
        raise ValueError(
            f"a step needs {batch_size} prompts, found {num_rows}: lower prompts_per_step or "
            f"prepare more problems"
        )
    return _endless(num_rows, batch_size, seed)


def _endless(num_rows: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    left: list[int] = []
    for epoch in itertools.count():
        order = np.random.default_rng(derive(seed, "epoch", epoch)).permutation(num_rows)
        # Rows still to come of the last pass go to the end of this one.
        left += sorted(order.tolist(), key=set(left).__contains__)
        while len(left) >= batch_size:
            yield left[:batch_size]
            left = left[batch_size:]
