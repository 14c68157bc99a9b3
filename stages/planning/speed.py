"""Speed of the base model on this machine, in each arithmetic, and which of them to choose.

A rate is operations per second of all seeds that run side by side (`workload`, `algorithms/flops`),
for each kind of pass. Seeds share the memory's bandwidth, so as many processes as run side by side
are timed at once, and their rates added. Rounding is fixed when a process starts, so each rounding
has processes of its own: `timed_passes`. They import side by side, and are timed in turn, but for
float32, where pinned and native passes take as long and share the places.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import IO, Any, NamedTuple

from stages.planning.workload import Work

TIMEOUT = 300
"""Seconds after which a measurement is given up."""
GAIN = 1.3
"""Times as fast that a costlier arithmetic has to be, to be recommended."""
FLOAT32, BFLOAT16, PINNED, NATIVE = "float32", "bfloat16", "pinned", "native"


class Arithmetic(NamedTuple):
    """Precision and instructions: `dtype` and `rounding` of section `compute`."""

    dtype: str
    rounding: str

    def describe_cost(self) -> str:
        """What it costs against pinned float32."""
        costs = ["less precise"] * (self.dtype == BFLOAT16)
        costs += ["bits that hold on this kind of processor alone"] * (self.rounding != PINNED)
        return ", ".join(costs) or "nothing: the same bits on every processor with AVX2"


SIMPLEST = Arithmetic(FLOAT32, PINNED)
"""The arithmetic that the others are compared with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Operations per second of all seeds that run side by side, by kind of pass."""

    trained: float
    forward: float
    sampled: float
    """Of the rows of a decode step, beside `step`."""
    step: float
    """Seconds that a decode step takes whatever the number of its rows, over the number of seeds
    that run side by side."""
    start: float
    """Seconds until the packages of a stage are imported."""

    def multiply(self, number: int) -> "Rates":
        """Rates of so many GPUs."""
        return Rates(
            trained=number * self.trained,
            forward=number * self.forward,
            sampled=number * self.sampled,
            step=self.step / number,
            start=self.start,
        )

    def predict_seconds(self, work: Work) -> float:
        """Seconds of these passes."""
        passes = work.trained / self.trained + work.forward / self.forward
        return passes + work.sampled / self.sampled + work.steps * self.step


def list_arithmetics(chosen: Arithmetic, *, is_gpu: bool) -> list[Arithmetic]:
    """Arithmetics to measure, that of the plan among them; on a GPU it alone."""
    if is_gpu:
        return [chosen]
    native = NATIVE if chosen.rounding == PINNED else chosen.rounding
    usual = [SIMPLEST, Arithmetic(FLOAT32, native), Arithmetic(BFLOAT16, native)]
    return usual if chosen in usual else [*usual, chosen]


def recommend(seconds: Mapping[Arithmetic, float]) -> Arithmetic:
    """Arithmetic to choose, of the seconds that the plan takes in each.

    Native where it is `GAIN` times as fast as pinned float32, and bfloat16 where it is so against
    the fastest float32.
    """
    precise = {item: time for item, time in seconds.items() if item.dtype == FLOAT32}
    fastest = min(precise, key=precise.__getitem__)
    best = fastest if precise[SIMPLEST] >= GAIN * precise[fastest] else SIMPLEST
    for item, time in seconds.items():
        if item.dtype == BFLOAT16 and precise[fastest] >= GAIN * time:
            best = item
    return best


def measure_rates(
    request: Mapping[str, Any], arithmetics: Sequence[Arithmetic], num_processes: int
) -> dict[Arithmetic, Rates]:
    """Rates in each arithmetic, of so many processes side by side.

    `request`: `timed_passes.Request` without what differs between them. A ValueError where the base
    model cannot be run.
    """
    rates: dict[Arithmetic, Rates] = {}
    with _start([*dict.fromkeys(each.rounding for each in arithmetics)]) as processes:
        for process in processes.values():
            _read_line(process)  # its imports are over
        for turn in take_turns(arithmetics, num_processes):
            for (dtype, rounding), number in turn.items():
                compute = {**request["compute"], "dtype": dtype, "rounding": rounding}
                content = {**request, "compute": compute, "num_processes": number}
                _write_line(processes[rounding], json.dumps(content))
            for each, number in turn.items():
                parts = [json.loads(_read_line(processes[each.rounding])) for _ in range(number)]
                rates[each] = add_rates(parts, num_processes)
    return {each: rates[each] for each in arithmetics}


def take_turns(
    arithmetics: Sequence[Arithmetic], num_processes: int
) -> Iterator[dict[Arithmetic, int]]:
    """Arithmetics that are timed at the same time, each with its number of processes."""
    native, remaining = Arithmetic(FLOAT32, NATIVE), [*arithmetics]
    if num_processes > 1 and {SIMPLEST, native} <= {*arithmetics}:
        yield {SIMPLEST: num_processes - num_processes // 2, native: num_processes // 2}
        remaining = [each for each in arithmetics if each not in (SIMPLEST, native)]
    yield from ({each: num_processes} for each in remaining)


def add_rates(parts: Sequence[Mapping[str, float]], num_processes: int) -> Rates:
    """Rates of so many processes side by side; `parts`: of those that were timed.

    The others are taken to be as fast.
    """
    kinds = {
        kind: num_processes * fmean(part[kind] for part in parts)
        for kind in ("trained", "forward", "sampled")
    }
    step = fmean(part["step"] for part in parts) / num_processes
    return Rates(**kinds, step=step, start=max(part["start"] for part in parts))


@contextmanager
def _start(roundings: Sequence[str]) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """A process for each rounding, ended at the end.

    A ValueError has the last line of errors of the one that ended first.
    """
    with ExitStack() as stack:
        errors = {
            rounding: stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            for rounding in roundings
        }
        processes: dict[str, subprocess.Popen[str]] = {}
        timer = threading.Timer(TIMEOUT, lambda: [each.kill() for each in processes.values()])
        try:
            timer.start()
            for rounding in roundings:
                processes[rounding] = subprocess.Popen(
                    [sys.executable, "-m", "stages.planning.timed_passes"],
                    env=os.environ | {"POSTTRAIN_ROUNDING": rounding}, text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors[rounding],
                )  # fmt: skip
            yield processes
        except (EOFError, BrokenPipeError):
            ended = next(name for name, each in processes.items() if each.poll() is not None)
            errors[ended].seek(0)
            lines = errors[ended].read().strip().splitlines()
            reason = lines[-1].strip().rstrip(".") if lines else "no answer, for want of memory"
            raise ValueError(
                f"expected the base model to run on this machine, found: {reason:.250}. Times are "
                f"not forecast without an earlier run."
            ) from None
        finally:
            timer.cancel()
            for process in processes.values():
                process.kill()
                process.communicate()


def _write_line(process: subprocess.Popen[str], text: str) -> None:
    pipe: IO[str] = process.stdin  # pyright: ignore[reportAssignmentType]
    try:
        pipe.write(f"{text}\n")
        pipe.flush()
    except BrokenPipeError:
        process.wait()
        raise


def _read_line(process: subprocess.Popen[str]) -> str:
    pipe: IO[str] = process.stdout  # pyright: ignore[reportAssignmentType]
    if not (line := pipe.readline()):
        process.wait()
        raise EOFError
    return line
