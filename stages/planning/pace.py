"""Time of stages: operations over the rate of earlier runs, or over the measured rates (`speed`).

A run's rate is operations per second of a whole stage and all its seeds: that of the latest run of
the same entry point on the same processor or GPU with a model of similar size.
"""

import json
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

import stages
from stages.algorithms import flops
from stages.algorithms.flops import Matrices, Passes
from stages.rows import DATA
from stages.runtime import outputs
from stages.runtime.outputs import PIPE
from stages.runtime.runs import JOURNALS, KEY_FILE, find_records
from stages.stage import OUTPUTS

REMEMBERED = PIPE / "doctor.json"
"""The last estimates, to be compared with the times that follow."""
VLLM_START = 15.0
"""Guessed seconds until vLLM is ready."""
SIMILAR_SIZE = 4.0
"""Largest ratio of two models' sizes for which the rate of one predicts the other's."""


def read_rates(parameters: int) -> dict[str, tuple[float, float]]:
    """Stage -> operations per second (or 0) and seconds of its last run here, at a similar size."""
    device, rates = describe_device(), {}
    for path in sorted(JOURNALS.glob(f"*/*/{KEY_FILE}")):
        stage, row = path.parts[-3:-1]
        record = read_last_record(path)
        if record is None or device != (record["device"], record["cpu"]["model"]):
            continue
        if any(seed["host"] != record["host"] for seed in record.get("seeds", {}).values()):
            continue  # its seconds are those of several machines
        folder = DATA / OUTPUTS.get(stage, ("none",))[-1].format(row)
        done = 0.0
        for metrics in sorted(folder.glob("*/metrics.json")):
            work = json.loads(metrics.read_text(encoding="utf-8")).get("work") or {}
            sizes = [model["parameters"] for model in work.values()]
            if sizes and not 1 / SIMILAR_SIZE < max(sizes) / parameters < SIMILAR_SIZE:
                break
            done += sum(_operations(model) for model in work.values())
        else:
            rates[f"{stage}@{row}"] = (done / record["seconds"], record["seconds"])
    # Those that write no operations say nothing of the model's size: the others do.
    return rates if any(operations for operations, _ in rates.values()) else {}


def read_last_record(key: Path) -> dict[str, Any] | None:
    """The run.json of the execution that wrote the outputs beside a key.json, if it was here."""
    if not key.is_file():
        return None
    content = json.loads(key.read_text(encoding="utf-8"))
    records = find_records(content["stage"], content["input_key"])
    return json.loads((records[-1] / "run.json").read_text(encoding="utf-8")) if records else None


def describe_device() -> tuple[str, str]:
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


def find_rate(name: str, rates: Mapping[str, tuple[float, float]]) -> float | None:
    """Operations per second of a stage's own run, or of one of its kind; None: there was none."""
    kind = name.partition("@")[0]
    kinds = [kind, "pool"] if kind == "sample" else [kind]
    same = [rates[name][0]] if name in rates else []
    of_kind = [value for stage, (value, _) in rates.items() if stage.partition("@")[0] in kinds]
    return next((value for value in same + of_kind if value > 0), None)


def write_estimates(expected: Mapping[str, float]) -> None:
    """Write the estimates for `compare_estimates`."""
    PIPE.mkdir(exist_ok=True)
    outputs.write_json(REMEMBERED, {"at": time.time(), "seconds": dict(expected)})


def compare_estimates(path: Path = REMEMBERED) -> dict[str, tuple[float, float]]:
    """Stage -> its last estimate and what it took, in seconds, of those that have run since."""
    if not path.is_file():
        return {}
    remembered, compared = json.loads(path.read_text(encoding="utf-8")), {}
    for name, expected in remembered["seconds"].items():
        record = read_last_record(JOURNALS / name.replace("@", "/") / KEY_FILE)
        if (
            record is not None
            and datetime.fromisoformat(record["ended"]).timestamp() > remembered["at"]
            and record["seconds"] > 0
        ):
            compared[name] = expected, record["seconds"]
    return compared


def describe_error(compared: Mapping[str, tuple[float, float]]) -> str:
    """Line on the error of estimates, sum of |expected - actual| over the sum of actual seconds.

    It names the stage whose estimate was furthest from its time.
    """
    errors = {name: abs(expected - actual) for name, (expected, actual) in compared.items()}
    share = sum(errors.values()) / sum(actual for _, actual in compared.values())
    worst = max(errors, key=errors.__getitem__)
    expected, actual = compared[worst]
    return (
        f"The last estimates were off by {share:.0%} (stages that ran since: {len(compared)}), "
        f"most for {worst}: {expected:.0f} s expected, {actual:.0f} s taken."
    )
