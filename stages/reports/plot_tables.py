"""The numbers of the plots as CSV, for `dvc plots` and for other tools."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.reports.learning_curve import CurvePoint

CURVES = {
    "mean": "mean_accuracy",
    "pass": "pass_at",
    "majority": "majority_at",
    "best_of": "best_of",
}
"""Column -> the table of a policy's metrics."""


def accuracy_by_n(path: Path, policies: Mapping[str, Mapping[str, Any]]) -> None:
    """One row a policy and n: accuracy of each way to choose among n samples, with its bounds."""
    rows = []
    for name, policy in policies.items():
        for n in policy["best_of"]:
            row: dict[str, Any] = {"policy": name, "n": int(n)}
            for column, table in CURVES.items():
                entry = policy[table] if table == "mean_accuracy" else policy[table][n]
                row |= {
                    column: entry["value"],
                    f"{column}_low": entry["low"],
                    f"{column}_high": entry["high"],
                }
            rows.append(row)
    _write(path, list(rows[0]), rows)


def mean_accuracy(path: Path, policies: Mapping[str, Mapping[str, Any]]) -> None:
    """One row a policy."""
    columns = ("value", "low", "high")
    rows = [
        {"policy": name, **{column: one["mean_accuracy"][column] for column in columns}}
        for name, one in policies.items()
    ]
    _write(path, ["policy", *columns], rows)


def learning_curves(path: Path, curves: Mapping[str, Sequence[CurvePoint]]) -> None:
    """One row a policy and step; none where nothing was trained on rollouts."""
    columns = ("step", "num_rollouts", "reward", "accuracy", "tokens", "truncation_rate")
    rows = [
        {"policy": name, **{column: round(getattr(point, column), 6) for column in columns}}
        for name, points in curves.items()
        for point in points
    ]
    _write(path, ["policy", *columns], rows)


def _write(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
