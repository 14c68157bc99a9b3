"""How long stages take: operations over the rate of earlier runs, or of this machine's products.

A rate is operations a second of a whole stage and all its seeds: that of the latest run of the same
entry point on the same processor or GPU with a model of about the size, else a share, which is a
guess, of that of a matrix product here.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import stages
from stages.algorithms import flops
from stages.algorithms.flops import Matrices, Passes
from stages.row_run import OUTPUTS
from stages.rows import DATA
from stages.runtime import gpu_slot, outputs
from stages.runtime.identity import PIPE
from stages.runtime.runs import RUNS

REMEMBERED = PIPE / "doctor.json"
"""What was expected, to be compared with what then happens."""
GUESSED = {"train": 0.3, "reward": 0.3, "evaluate": 0.2}
"""Share of the rate of products that a stage reaches, by the first word of its entry point."""
SAMPLING = 0.1
"""Of those that decode, token by token."""
START, VLLM_START = 2.0, 15.0
"""Seconds until a model is loaded, and until vLLM is ready; guesses too."""
ALIKE = 4.0
"""Models differ by at most this factor in size for one's rate to tell of the other's."""


def product_rate(dtype: str, device: torch.device) -> float:
    """Operations a second of the largest square product that takes some milliseconds; all cores."""
    width = 8192 if device.type == "cuda" else 768
    kind = torch.bfloat16 if dtype == "bfloat16" and device.type == "cuda" else torch.float32
    one = torch.ones(width, width, dtype=kind, device=device)
    best = float("inf")
    for _ in range(4):
        begin = time.perf_counter()
        (one @ one)[0, 0].item()
        best = min(best, time.perf_counter() - begin)
    # Seeds run side by side, a core or a GPU each.
    return 2 * width**3 / best * max(1, len(gpu_slot.devices()) or len(os.sched_getaffinity(0)))


def recorded(parameters: int) -> dict[str, tuple[float, float]]:
    """Stage -> operations a second (or 0) and seconds of its last run here, of a model as large."""
    device, found = here(), {}
    for path in sorted(RUNS.glob("*/*/run.json")):
        stage, row = path.parts[-3:-1]
        record = json.loads(path.read_text(encoding="utf-8"))
        if device != (record["device"], record["cpu"]["model"]):
            continue
        folder = DATA / OUTPUTS.get(stage, ("none",))[-1].format(row)
        done = 0.0
        for metrics in sorted(folder.glob("*/metrics.json")):
            work = json.loads(metrics.read_text(encoding="utf-8")).get("work") or {}
            sizes = [one["parameters"] for one in work.values()]
            if sizes and not 1 / ALIKE < max(sizes) / parameters < ALIKE:
                break
            done += sum(_operations(one) for one in work.values())
        else:
            found[f"{stage}@{row}"] = (done / record["seconds"], record["seconds"])
    # Those that write no operations say nothing of the model's size: the others do.
    return found if any(operations for operations, _ in found.values()) else {}


def here() -> tuple[str, str]:
    """The device and the processor, as run.json names them."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return gpu, stages.processor().get("model name", "")


def _operations(work: Mapping[str, Any]) -> int:
    names = ("body", "output", "trained_body", "trained_output")
    model = Matrices(**{name: work[name] for name in names})
    return sum(
        (flops.count_training_flops if kind == "trained" else flops.count_forward_flops)(
            model, Passes(**passes)
        )
        for kind, passes in work.items()
        if isinstance(passes, dict)
    )


def rate(
    name: str, entry_point: str, known: Mapping[str, tuple[float, float]], here: float
) -> tuple[float, bool]:
    """Operations a second of a stage, and whether a run of its own or of its kind has told it."""
    kind = name.partition("@")[0]
    alike = [kind, "pool"] if kind == "sample" else [kind]
    own = [known[name][0]] if name in known else []
    told = own + [value for other, (value, _) in known.items() if other.partition("@")[0] in alike]
    if told := [value for value in told if value > 0]:
        return told[0], True
    return here * GUESSED.get(entry_point.partition("_")[0], SAMPLING), False


def remember(expected: Mapping[str, float]) -> None:
    """Keep the seconds that stages are expected to take, for `error`."""
    PIPE.mkdir(exist_ok=True)
    outputs.write_json(REMEMBERED, {"at": time.time(), "seconds": dict(expected)})


def error(path: Path = REMEMBERED) -> tuple[float, int] | None:
    """How far the last estimates were off, and of how many stages that have run since.

    The mean of |expected - taken| over the mean of what was taken; None: nothing ran since.
    """
    if not path.is_file():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    off = taken = count = 0.0
    for name, expected in told["seconds"].items():
        record = RUNS / name.replace("@", "/") / "run.json"
        if record.is_file() and record.stat().st_mtime > told["at"]:
            seconds = json.loads(record.read_text(encoding="utf-8"))["seconds"]
            off, taken, count = off + abs(expected - seconds), taken + seconds, count + 1
    return (off / taken, int(count)) if taken else None
