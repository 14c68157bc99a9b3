"""Our loops against TRL's trainers.

    python -m tests.benchmarks.against_trl sft
    BENCHMARK_MODEL=smollm2 python -m tests.benchmarks.against_trl dpo --steps 3 --threads 2

Needs TRL 1.16.0 (`pip install -e '.[parity]'`). A step of theirs and a step of ours are taken in
turn, so that what else the machine does slows both alike. Times of one thread are the process's
own, without what others took of the core; those of several are by the clock. The first step of each
is not counted. Printed: medians, the median of the ratios of neighbouring steps with its quartiles,
and the share of the machine's matrix products: operations of our step (`stages/algorithms/flops`)
over time and the rate of a large product, measured in the same process.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stages  # noqa: F401 - fixes threads and instructions before torch is imported

METHODS = ("sft", "dpo", "grpo")


def compare(method: str, number: int, num_threads: int = 1) -> dict[str, Any]:
    """Times of `number` steps of each side, in seconds, and operations of one of ours."""
    import torch

    from stages.models import device
    from tests.benchmarks import ours, theirs

    device.pin_instructions()
    torch.set_num_threads(num_threads)
    clock = time.process_time if num_threads == 1 else time.perf_counter
    model, steps = ours.steps(method, number + 1)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    operations: list[int] = []
    start = 0.0

    def turn() -> None:
        nonlocal start
        end = clock()
        times["theirs"].append(end - start)
        operations.append(ours.operations(model, next(steps)))
        start = clock()
        times["ours"].append(start - end)

    with tempfile.TemporaryDirectory() as folder:
        start = clock()
        theirs.run(method, number + 1, Path(folder), turn)
    counted = {side: values[1:] for side, values in times.items()}
    return counted | {"operations": operations[1:], "rate": _matrix_rate(clock)}


def _matrix_rate(clock: Callable[[], float]) -> float:
    """Operations a second of a large product in float32: the best of several."""
    import torch

    matrix = torch.randn(768, 768)
    best = float("inf")
    for _ in range(12):
        start = clock()
        matrix @ matrix
        best = min(best, clock() - start)
    return 2 * 768**3 / best


def _row(method: str, times: dict[str, Any]) -> str:
    from statistics import median, quantiles

    ours, theirs = times["ours"], times["theirs"]
    low, middle, high = quantiles([b / a for a, b in zip(ours, theirs, strict=True)], n=4)
    operations = median(times["operations"])
    share = [operations / (median(side) * times["rate"]) for side in (ours, theirs)]
    return (
        f"| {method} | {median(ours):.3f} | {median(theirs):.3f} | **{middle:.2f}** "
        f"| {low:.2f} to {high:.2f} | {share[0]:.0%} | {share[1]:.0%} |"
    )


def main() -> None:
    """Print the row of a method."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.against_trl")
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--steps", type=int, default=7, help="counted steps of each side")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.steps < 2:
        parser.error(f"--steps: expected at least 2, for quartiles, found {options.steps}")
    print("| method | ours, s | TRL, s | TRL / ours | quartiles | share of matrix rate | TRL's |")
    print("|---|---|---|---|---|---|---|")
    print(_row(options.method, compare(options.method, options.steps, options.threads)))


if __name__ == "__main__":
    main()
