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
Content = Mapping[str, Any] | None
"""Parameters and metrics of a commit or experiment in the output of `dvc exp show --json`."""


def tabulate_experiments(shown: Sequence[Any]) -> tuple[str, Rows]:
    """The measure's name, and a row for HEAD and each of its experiments.

    The measure is accuracy, or else the first file of data/headlines. `shown`: what `dvc exp show
    --json` prints: the folder, then HEAD with its experiments.
    """
    commit = next(item for item in shown if item["rev"] != "workspace")
    experiments = sorted(commit["experiments"] or [], key=lambda item: item["name"] or "")
    items = [commit, *experiments]
    contents = [commit["data"], *(item["revs"][0]["data"] for item in experiments)]
    states = [(item.get("executor") or {}).get("state") for item in items]
    measures = [
        {} if state in UNFINISHED else list_measures(content)
        for state, content in zip(states, contents, strict=True)
    ]
    names = {name for by_name in measures for name in by_name}
    measure = ACCURACY if ACCURACY in names else min(names, default=ACCURACY)
    params = [*map(flatten_params, contents)]
    before = params[0]
    changed = dict.fromkeys(
        key for values in params for key in sorted(values) if values[key] != before.get(key)
    )
    rows: Rows = []
    for item, state, values, numbers in zip(items, states, params, measures, strict=True):
        label = item["name"] or commit["rev"][:7]
        rows.append({
            "experiment": f"{label} ({state})" if state in UNFINISHED else label,
            **{key: str(values.get(key, before.get(key, NOTHING))) for key in changed},
            **{policy: f"{number:g}" for policy, number in numbers.get(measure, {}).items()},
        })  # fmt: skip
    return measure, rows


def list_measures(data: Content) -> dict[str, dict[str, float]]:
    """Measure -> policy -> number."""
    metrics = (data or {}).get("metrics") or {}
    return {
        PurePath(path).stem: content["data"]
        for path, content in metrics.items()
        if "data" in content  # else the file is not in this clone
    }


def flatten_params(data: Content) -> dict[str, Any]:
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
