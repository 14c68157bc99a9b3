"""The numbers of the plots as CSV, for `dvc plots` and for other tools."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.reports.learning_curve import CurvePoint

BOUNDS = ("value", "low", "high")


def accuracy_by_n(path: Path, policies: Mapping[str, Mapping[str, Any]]) -> None:
    """One row a policy and n, a column a method, with its bounds; `mean` is one random sample.

    Empty where a policy has no such method: nothing of its kind scored it.
    """
    methods = dict.fromkeys(
        ["best_of/reward_model", *(m for one in policies.values() for m in one["accuracy_at"])]
    )
    rows = []
    for name, policy in policies.items():
        at = policy["accuracy_at"]
        for n in at["majority"]:
            row: dict[str, Any] = {"policy": name, "n": int(n)}
            row |= _cells("mean", policy["mean_accuracy"])
            for method in methods:
                row |= _cells(method, at[method][n] if method in at else None)
            rows.append(row)
    _write(path, list(rows[0]), rows)


def mean_accuracy(path: Path, policies: Mapping[str, Mapping[str, Any]]) -> None:
    """One row a policy."""
    rows = [
        {"policy": name, **{key: one["mean_accuracy"][key] for key in BOUNDS}}
        for name, one in policies.items()
    ]
    _write(path, ["policy", *BOUNDS], rows)


def learning_curves(path: Path, curves: Mapping[str, Sequence[CurvePoint]]) -> None:
    """One row a policy and step; none where nothing was trained on rollouts."""
    columns = ("step", "num_rollouts", "reward", "accuracy", "tokens", "truncation_rate")
    rows = [
        {"policy": name, **{column: round(getattr(point, column), 6) for column in columns}}
        for name, points in curves.items()
        for point in points
    ]
    _write(path, ["policy", *columns], rows)


def _cells(column: str, interval: Mapping[str, Any] | None) -> dict[str, Any]:
    suffixes = {"value": "", "low": "_low", "high": "_high"}
    return {
        column + suffix: "" if interval is None else interval[key]
        for key, suffix in suffixes.items()
    }


def _write(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
