"""Print a table of this commit's experiments.

    python -m flows.experiments                    of every experiment that `dvc exp show` lists

It has accuracies, or without gold answers another headline number. `dvc exp show` instead has a
column for each parameter and headline number, hundreds in all.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.command_line import make_parser, run
from flows.lock import flatten
from flows.plan import run_dvc

ACCURACY = "accuracy"
UNFINISHED = ("queued", "running", "failed")
"""States in which DVC lists the numbers of the experiment's base commit."""
NOTHING = "–"
Rows = list[dict[str, str]]
Experiment = Mapping[str, Any]
"""A commit or experiment in the output of `dvc exp show --json`."""


def tabulate_experiments(shown: Sequence[Any]) -> tuple[str, Rows]:
    """The measure's name, and a row for HEAD and each of its experiments.

    The measure is accuracy, or else the first file of data/headlines. `shown`: what `dvc exp show
    --json` prints: the folder, then HEAD with its experiments.
    """
    commit = next(item for item in shown if item["rev"] != "workspace")
    experiments = sorted(commit["experiments"] or [], key=lambda item: item["name"] or "")
    finished = [commit["data"], *(read_finished(item) for item in experiments)]
    measures = sorted({name for data in finished for name in list_measures(data)})
    chosen = ACCURACY if ACCURACY in measures or not measures else measures[0]
    before = flatten_params(commit["data"])
    changes = [
        {
            key: value
            for key, value in flatten_params(item["revs"][0]["data"]).items()
            if before.get(key) != value
        }
        for item in experiments
    ]
    names = list(dict.fromkeys(key for changed in changes for key in sorted(changed)))
    rows: Rows = []
    for item, data, changed in zip(
        [commit, *experiments], finished, [before, *changes], strict=True
    ):
        label = item["name"] or commit["rev"][:7]
        state = (item.get("executor") or {}).get("state") or ""
        values = list_measures(data).get(chosen, {})
        rows.append({
            "experiment": f"{label} ({state})" if state in UNFINISHED else label,
            **{key: str(changed.get(key, before.get(key, NOTHING))) for key in names},
            **{policy: f"{value:g}" for policy, value in values.items()},
        })  # fmt: skip
    return chosen, rows


def read_finished(experiment: Experiment) -> Experiment | None:
    """Data of an experiment; None: it is unfinished, or failed."""
    state = (experiment["executor"] or {}).get("state")
    return None if state in UNFINISHED else experiment["revs"][0]["data"]


def list_measures(data: Experiment | None) -> dict[str, dict[str, float]]:
    """Measure -> policy -> number."""
    metrics = (data or {}).get("metrics") or {}
    return {
        PurePath(path).stem: content["data"]
        for path, content in metrics.items()
        if "data" in content  # else the file is not in this clone
    }


def flatten_params(data: Experiment | None) -> dict[str, Any]:
    """`grpo.num_steps` -> value, for all parameter files."""
    files = ((data or {}).get("params") or {}).values()
    return {key: value for file in files for key, value in flatten(file["data"], "").items()}


def main() -> None:
    """Run the command line."""
    make_parser("flows.experiments", __doc__).parse_args()
    shown = json.loads(run_dvc(Path.cwd(), "exp", "show", "--json"))
    measure, rows = tabulate_experiments(shown)
    table = Table(title=measure, title_justify="left")
    columns = list(dict.fromkeys(column for row in rows for column in row))
    for column in columns:
        table.add_column(column, overflow="fold")  # wraps if too wide
    for row in rows:
        table.add_row(*(row.get(column, NOTHING).replace("[", r"\[") for column in columns))
    Console().print(table)


if __name__ == "__main__":
    run(main)
