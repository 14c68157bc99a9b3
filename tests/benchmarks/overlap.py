"""Steps per second of GRPO with a sampler in a process of its own, against one process.

    python -m tests.benchmarks.overlap

Needs two free cores and 3 minutes. The two run in turn; a ratio is of neighbours. Timed are steps
in which one batch is drawn and one learned from: with `staleness` 1 the first draws two, the last
none.
"""

import os
import time
from itertools import islice
from statistics import median

import torch

from stages.loops import overlap
from tests.benchmarks import ours

NUM_STEPS, NUM_ROUNDS = 6, 3
ON_POLICY, OVERLAPPED = (0, "0"), (1, "1")
"""`staleness` and POSTTRAIN_SAMPLERS."""


def measure_speed(staleness: int, samplers: str) -> float:
    """Steps per second, from the second step to the last but one."""
    os.environ[overlap.SAMPLERS] = samplers
    _, steps = ours.steps("grpo_kl", NUM_STEPS, staleness=staleness)
    next(steps)
    begin = time.monotonic()
    num_timed = len(list(islice(steps, NUM_STEPS - 2)))
    return num_timed / (time.monotonic() - begin)


def main() -> None:
    """Print the speeds of each round and the median of their ratios."""
    torch.set_num_threads(1)
    ratios: list[float] = []
    for _ in range(NUM_ROUNDS):
        speeds = [measure_speed(*variant) for variant in (ON_POLICY, OVERLAPPED)]
        ratios.append(speeds[1] / speeds[0])
        print(f"one process {speeds[0]:.3f} steps/s, with a sampler beside it {speeds[1]:.3f}")
    print(f"{median(ratios):.2f} times the steps per second")


if __name__ == "__main__":
    main()
