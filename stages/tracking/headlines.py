"""Headline numbers of a stage, by which a list of runs is compared, and the best policy."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from stages.config import read_yaml
from stages.records.metrics import average_metrics, read_with_last_step, round_metric
from stages.rows import locate_policy
from stages.runtime.headlines import METRICS
from stages.tracking import lockfile
from stages.tracking.lockfile import Entry

DEV = "dev_accuracy"


def average_headlines(entry: Entry) -> dict[str, float]:
    """Headline numbers of a stage: means over its seeds."""
    return average_metrics(read_seed_metrics(entry).values(), METRICS.get(entry.kind, {}))


def read_seed_metrics(entry: Entry) -> dict[str, dict[str, Any]]:
    """Content of each seed's metrics.json, with the metrics of the last step of its history."""
    paths = chain.from_iterable(out.path.glob("[0-9]*/metrics.json") for out in entry.outs)
    return {path.parent.name: read_with_last_step(path) for path in paths}


def find_best() -> Path:
    """Folder of the best policy's weights; the working folder is the repository.

        AutoModelForCausalLM.from_pretrained(find_best())

    Raises:
        ValueError: no policy was evaluated on dev problems, or its folder does not exist.
    """
    best = choose_best(lockfile.read_entries())
    if best is None:
        raise ValueError(
            "expected a policy with an accuracy on dev problems, found none: `dvc repro` trains "
            "and evaluates policies, `dvc checkout` restores what it wrote"
        )
    policy, seed = best
    path = locate_policy(policy, int(seed))
    if not path.is_dir():
        raise ValueError(
            f"expected weights in {path}, found no folder: `dvc checkout {path.parent}`"
        )
    return path


def choose_best(entries: Sequence[Entry]) -> tuple[str, str] | None:
    """Policy with the highest mean accuracy on dev problems, and the best of its seeds there.

    Never by test problems: chance favours the policy with the highest accuracy there, so its test
    result would be too good. Of equals the baseline, else the first row, as in the report
    (`comparison.compare_policies`). A control, or a policy that was not evaluated with every seed
    since it was trained, is never chosen. None if no policy has an accuracy.
    """
    stale = lockfile.find_stale(entries)
    controls = {entry.stage for entry in entries if "--control" in entry.command.split()}
    accuracy: dict[str, dict[str, float]] = {}
    for entry in entries:
        kind, _, policy = entry.stage.partition("@")
        if kind == "evaluate" and not {entry.stage, f"train@{policy}"} & (controls | stale):
            of_seeds = read_seed_metrics(entry)
            if all(DEV in metrics for metrics in of_seeds.values()):
                accuracy[policy] = {seed: float(of[DEV]) for seed, of in of_seeds.items()}
    measured = [policy for policy, of_seeds in accuracy.items() if of_seeds]
    if not measured:
        return None
    baseline = read_yaml().get("baseline")
    measured.sort(key=lambda name: name != baseline)
    policy = max(measured, key=lambda name: round_metric(fmean(accuracy[name].values())))
    return policy, max(sorted(accuracy[policy]), key=accuracy[policy].__getitem__)


def read_report_numbers(path: Path) -> dict[str, float]:
    """Numbers of the report: `accuracy/grpo` per policy, and `gain/grpo` over the baseline.

    For a control `control/coin`, over the policy that it started from; for an environment
    `success/calculator/grpo` and `success_gain/calculator/grpo`.
    """
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def select(measure: str, policies: Mapping[str, Any]) -> dict[str, Any]:
        return {name: of[measure] for name, of in policies.items() if measure in of}

    estimates = {
        "accuracy": select("mean_accuracy", content.get("policies", {})),
        "gain": content.get("gains", {}).get("mean_accuracy", {}),
        "control": dict(
            difference
            for of_kind in content.get("controls", {}).get("differences", {}).values()
            for difference in of_kind.items()
        ),
    }
    for environment, played in content.get("episodes", {}).items():
        estimates[f"success/{environment}"] = select("success", played["policies"])
        estimates[f"success_gain/{environment}"] = played["gains"]["success"]
    return {
        f"{kind}/{name}": float(estimate["value"])
        for kind, by_name in estimates.items()
        for name, estimate in by_name.items()
    }
