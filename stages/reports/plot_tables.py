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


def accuracy_by_n(path: Path, policy: Mapping[str, Any]) -> None:
    """One row an n: the accuracy of each way to choose among n samples, with its bounds."""
    rows = []
    for n in policy["best_of"]:
        row: dict[str, Any] = {"n": int(n)}
        for column, table in CURVES.items():
            entry = policy[table] if table == "mean_accuracy" else policy[table][n]
            row |= {
                column: entry["value"],
                f"{column}_low": entry["low"],
                f"{column}_high": entry["high"],
            }
        rows.append(row)
    _write(path, rows)


def mean_accuracy(path: Path, policies: Mapping[str, Mapping[str, Any]]) -> None:
    """One row a policy."""
    _write(
        path,
        [
            {"policy": name, **{key: one["mean_accuracy"][key] for key in ("value", "low", "high")}}
            for name, one in policies.items()
        ],
    )


def learning_curve(path: Path, points: Sequence[CurvePoint]) -> None:
    """One row a step."""
    columns = ("step", "num_rollouts", "reward", "accuracy", "tokens", "truncation_rate")
    _write(
        path,
        [{column: round(getattr(point, column), 6) for column in columns} for point in points],
    )


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
