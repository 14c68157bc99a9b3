"""Our loops against TRL's trainers.

    python -m tests.benchmarks.against_trl [method ...] [--steps 7]
    python -m tests.benchmarks.against_trl sft dpo reward --model smollm2 --steps 3 --threads 2

Needs TRL 1.16.0 (`pip install -e '.[parity]'`). Each method runs in a process of its own, which
takes a step of theirs and a step of ours in turn, so that what else the machine does slows both
alike. Times of one thread are the process's own, without what others took of the core; those of
several are by the clock. The first step of each is not counted. Printed: medians, the median of the
ratios of neighbouring steps with its quartiles, and the share of the machine's matrix products:
operations of our step (`stages/algorithms/flops`) over time and the rate of a large product,
measured in the same process.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import stages  # noqa: F401 - fixes threads and instructions before torch is imported

METHODS = ("sft", "dpo", "reward", "grpo", "grpo_kl", "sampling")
ROOT = Path(__file__).parents[2]


def compare(method: str, number: int, num_threads: int = 1) -> dict[str, object]:
    """Times of `number` steps of each side, in seconds, and operations of one of ours."""
    import torch

    from stages.models import device
    from tests.benchmarks import ours, theirs

    device.pin_instructions()
    torch.set_num_threads(num_threads)
    clock = time.process_time if num_threads == 1 else time.perf_counter
    models, steps = ours.steps(method, number + 1)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    operations: list[int] = []
    start = 0.0

    def turn() -> None:
        nonlocal start
        end = clock()
        times["theirs"].append(end - start)
        operations.append(ours.operations(models, next(steps)))
        start = clock()
        times["ours"].append(start - end)

    with tempfile.TemporaryDirectory() as folder:
        start = clock()
        theirs.run(method, number + 1, Path(folder), turn)
    return {
        "method": method,
        **{side: values[1:] for side, values in times.items()},
        "operations": operations[1:],
        "rate": _matrix_rate(clock),
    }


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


def _row(times: dict) -> str:
    from statistics import median, quantiles

    ours, theirs = times["ours"], times["theirs"]
    low, middle, high = quantiles([b / a for a, b in zip(ours, theirs, strict=True)], n=4)
    operations = median(times["operations"])
    share = [operations / (median(side) * times["rate"]) for side in (ours, theirs)]
    return (
        f"| {times['method']} | {median(ours):.3f} | {median(theirs):.3f} | **{middle:.2f}** "
        f"| {low:.2f} to {high:.2f} | {share[0]:.0%} | {share[1]:.0%} |"
    )


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.against_trl")
    parser.add_argument("methods", nargs="*", metavar="method", help=", ".join(METHODS))
    parser.add_argument("--steps", type=int, default=7, help="counted steps of each side")
    parser.add_argument("--model", choices=["small", "smollm2"], default="small", help="its shape")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.methods) - set(METHODS):
        parser.error(f"expected {', '.join(METHODS)}, found {', '.join(sorted(unknown))}")
    if options.steps < 2:
        parser.error(f"--steps: expected at least 2, for quartiles, found {options.steps}")
    if options.here:
        print(json.dumps(compare(options.methods[0], options.steps, options.threads)))
        return
    if importlib.util.find_spec("trl") is None:
        parser.error("TRL is not installed: pip install -c constraints.txt -e '.[test,parity]'")
    print("| method | ours, s | TRL, s | TRL / ours | quartiles | share of matrix rate | TRL's |")
    print("|---|---|---|---|---|---|---|")
    for method in options.methods or METHODS:
        sizes = ["--steps", str(options.steps), "--threads", str(options.threads)]
        more = {"PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1", "BENCHMARK_MODEL": options.model}
        completed = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.against_trl", method, "--here", *sizes],
            env=os.environ | more, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        print(_row(json.loads(completed.stdout.splitlines()[-1])), flush=True)


if __name__ == "__main__":
    main()
