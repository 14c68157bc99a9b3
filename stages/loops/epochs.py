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

    Raises:
        ValueError: fewer rows than a batch needs.
    """
    if num_rows < batch_size:
        raise ValueError(
            f"a step needs {batch_size} prompts, found {num_rows}: lower prompts_per_step or "
            f"prepare more problems"
        )
    num_epochs = -(-num_steps * batch_size // num_rows)
    order = [row for batch in batches(num_rows, num_epochs, num_rows, seed) for row in batch]
    return [order[step * batch_size : (step + 1) * batch_size] for step in range(num_steps)]
