"""The order in which rows are visited, known before the first step."""

import numpy as np

from stages.seeding import derive


def batches(num_rows: int, num_epochs: int, batch_size: int, seed: int) -> list[list[int]]:
    """Row numbers of each optimizer step: every row once an epoch, a fresh shuffle each.

    The last, smaller batch of an epoch is kept.
    """
    steps = []
    for epoch in range(num_epochs):
        order = np.random.default_rng(derive(seed, "epoch", epoch)).permutation(num_rows)
        steps += [
            order[start : start + batch_size].tolist() for start in range(0, num_rows, batch_size)
        ]
    return steps


def draws(num_rows: int, num_steps: int, batch_size: int, seed: int) -> list[list[int]]:
    """Row numbers of `num_steps` full batches, drawn from shuffled passes over the rows.

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
    steps: list[list[int]] = []
    left: list[int] = []
    epoch = 0
    while len(steps) < num_steps:
        while len(left) < batch_size:
            order = np.random.default_rng(derive(seed, "epoch", epoch)).permutation(num_rows)
            # Rows still to come of the last pass go to the end of this one.
            left += sorted(order.tolist(), key=set(left).__contains__)
            epoch += 1
        steps.append(left[:batch_size])
        left = left[batch_size:]
    return steps
