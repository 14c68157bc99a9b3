"""Study: how much of a result is rounding, and how much is the seed?

    python -m studies rounding

Trains policies with every seed again under other roundings: the instructions of the machine in
place of the pinned ones, with one thread and with two (`compute.rounding`, stages/__init__.py).
All else is the same, and each rounding repeats to the bit, so what differs is the order of float32
sums alone. Reports the standard deviation of accuracy between roundings beside that between seeds:
a difference smaller than the former would not be the same on another kind of machine, were the
instructions not pinned; one smaller than the latter would not be the same with another seed.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from stages.config import Params, read_yaml
from stages.models.device import ComputeConfig
from stages.records import pools
from stages.records.metrics import round_metric
from stages.report import markdown
from stages.rewards import problem_evaluation
from stages.rows import DATA
from stages.runtime import outputs, process
from studies import copies
from studies import study as studies
from studies.copies import RepoCopy

PINNED = "pinned"
MEASURES = {"test": "mean accuracy of the samples", "test_greedy": "greedy accuracy"}
"""Files of a policy's samples -> what is told of them."""
DEVIATIONS = ("between_roundings", "between_seeds")
"""Along the axes of a `Table`."""
Table = Float[np.ndarray, "rounding seed"]


class Rounding(Params):
    """Policies to train again, and the roundings."""

    policies: list[str]
    """Rows of `policies`; what they are made from is made again too."""
    roundings: list[Literal["native", "native-2"]]
    """Besides the pinned one, which the run itself has."""


class Config(Params):
    """Keys that the study reads."""

    seeds: list[int]
    compute: ComputeConfig
    rounding: Rounding


def main() -> None:
    """Write `metrics.json` and `report.md`."""
    with studies.start_study("rounding", rows=False, plots=False) as study:
        config = studies.load_study_config(Config, "rounding")
        if config.compute.rounding != PINNED:
            raise ValueError(
                f"compute.rounding: expected {PINNED}, with which the others are compared, found "
                f"{config.compute.rounding}"
            )
        plan, settings = outputs.read_json(DATA / "plan.json"), config.rounding
        folders = {PINNED: DATA}
        for rounding in settings.roundings:
            changes = {"compute": {**read_yaml()["compute"], "rounding": rounding}}
            copy = copies.make_copy(study.run.folder / rounding, changes=changes)
            train_copy(copy, plan, settings.policies)
            folders[rounding] = copy.data
        accuracy_by_policy = {
            policy: {
                measure: measure_spread(
                    tabulate_accuracy(folders.values(), config.seeds, policy, measure)
                )
                for measure in MEASURES
            }
            for policy in settings.policies
        }  # fmt: skip
        metrics = {
            "roundings": list(folders),
            "seeds": config.seeds,
            "policies": accuracy_by_policy,
        }
        study.write(metrics, render_report(metrics))


def train_copy(copy: RepoCopy, plan: copies.Plan, policies: list[str]) -> None:
    """Make the policies and their samples."""
    rows = [row for policy in policies for row in copies.list_needed_rows(plan, "policies", policy)]
    commands = [copies.make_row_command(*row, plan[row[0]][row[1]]) for row in dict.fromkeys(rows)]
    for command in (*commands, *map(copies.make_sample_command, policies)):
        copy.run(command)


def tabulate_accuracy(
    folders: Iterable[Path], seeds: list[int], policy: str, measure: str
) -> Table:
    """The accuracy of a policy, a row for the data of each rounding."""
    samples = [[data / f"samples/{policy}/{seed}" for seed in seeds] for data in folders]
    return np.array([
        [
            problem_evaluation.pool_accuracy(pools.read_split(path, "test", measure))
            for path in of_seeds
        ]
        for of_seeds in samples
    ])  # fmt: skip


def measure_spread(table: Table) -> dict[str, Any]:
    """Accuracies, and their standard deviation between roundings and between seeds.

    Between roundings: the root of the mean over seeds of the variance (ddof 1) over roundings of
    one seed; between seeds likewise, with the two exchanged. None of a single one.
    """
    metrics: dict[str, Any] = {
        "accuracy": [[round_metric(share) for share in row] for row in table]
    }
    for axis, name in enumerate(DEVIATIONS):
        enough = table.shape[axis] > 1
        deviation = table.var(axis=axis, ddof=1).mean() ** 0.5 if enough else np.nan
        metrics[name] = round_metric(deviation) if enough else None
    return metrics


def render_report(metrics: Mapping[str, Any]) -> str:
    """The report."""
    parts = [
        "# Rounding beside seeds",
        "Standard deviations of a policy's accuracy, in percentage points: between roundings of "
        "one seed, and between seeds of one rounding. In the other columns each seed's accuracy.",
    ]
    for measure, label in MEASURES.items():
        header = ["policy", "between roundings", "between seeds", *metrics["roundings"]]
        rows = []
        for policy, policy_metrics in metrics["policies"].items():
            widths = [policy_metrics[measure][name] for name in DEVIATIONS]
            cells = ["" if width is None else f"{100 * width:.2f}" for width in widths]
            seeds = [
                [f"{100 * value:.1f}" for value in row]
                for row in policy_metrics[measure]["accuracy"]
            ]
            rows.append([policy, *cells, *map(", ".join, seeds)])
        parts += [f"{label.capitalize()}:", markdown.render_table(header, rows)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    process.run(main)
