"""Artifacts of a stage's run in MLflow: data sets, small files, completions.

Weights stay where they are, unless POSTTRAIN_TRACK_WEIGHTS is 1: `dvc checkout` at the run's commit
restores them.
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mlflow.entities import Dataset, DatasetInput, InputTag
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS

from stages.rows import DATA, PROMPTS
from stages.tracking import completions
from stages.tracking.completions import Table
from stages.tracking.lockfile import Entry
from stages.tracking.store import Store

SUFFIXES = {".md", ".png", ".svg", ".csv", ".json", ".html", ".txt"}
MAX_BYTES = 4_000_000
NO_DATA = {"code", "own", "journals", "inputs.json", "raw.json", "plan.json"}
"""Names in data/ that are no data sets: source code, journals and records."""


def is_checkpoint(path: Path) -> bool:
    """Whether a folder holds a model (or an adapter) as transformers saves it."""
    return (path / "config.json").is_file() or (path / "adapter_config.json").is_file()


def find_policies(entry: Entry) -> Iterator[Path]:
    """The policy of each seed that the stage trained."""
    for out in entry.outs:
        if out.path.name == "model":
            seeds = sorted(path for path in out.path.glob("*") if path.name.isdigit())
            yield from filter(is_checkpoint, seeds)


def is_inside_model(path: Path, top: Path) -> bool:
    """Whether a model in the output `top` holds this file."""
    folders = [folder for folder in path.parents if folder == top or top in folder.parents]
    return any(is_checkpoint(folder) for folder in folders)


def log_inputs(store: Store, run_id: str, entry: Entry) -> None:
    """The data and policies that the stage read, as data sets with DVC's digests.

    MLflow's pages show the first of them: what the row names in `on` comes before the prompts, and
    policies last.
    """
    inputs = []
    deps = [dep for dep in entry.deps if DATA in dep.path.parents]
    for dep in sorted(deps, key=lambda dep: (dep.path.name == "model", dep.path == PROMPTS)):
        if dep.path.parts[1] in NO_DATA:
            continue
        name = dep.path.relative_to(DATA).as_posix()
        source = json.dumps({"path": dep.path.as_posix(), "md5": dep.digest})
        context = "policy" if dep.path.name == "model" else "data"
        dataset = Dataset(name, dep.digest[:36], "dvc", source)
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
    if inputs:
        store.client.log_inputs(run_id, inputs)


def log_files(store: Store, run_id: str, entry: Entry) -> None:
    """Small files, tables of completions, and the weights where they are asked for."""
    for path, folder in find_small_files(entry):
        store.client.log_artifact(run_id, str(path), folder)
    log_tables(store, run_id, completions.read_tables(entry))
    if os.environ.get("POSTTRAIN_TRACK_WEIGHTS") == "1":
        for path in find_policies(entry):
            store.client.log_artifacts(run_id, str(path), f"model/{path.name}")


def log_tables(store: Store, run_id: str, tables: Iterable[tuple[str, Table]]) -> None:
    """Tables by name, which MLflow's pages show as such."""
    shown = []
    for name, table in tables:
        # Not by `log_table`, which appends to a table that exists.
        shown.append({"path": f"completions/{name}.json", "type": "table"})
        store.client.log_text(run_id, json.dumps(table), shown[-1]["path"])
    if shown:
        store.client.set_tag(run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps(shown))


def find_small_files(entry: Entry) -> Iterator[tuple[Path, str | None]]:
    """(file, folder in the run) of reports, plots, metrics and the run record, none of a model.

    Where the run record is on another machine, the journals are in its place.
    """
    journals = entry.journals
    if (record := entry.record or journals) is not None:
        yield from ((path, "run") for path in sorted(record.iterdir()))
    for out in entry.outs:
        if out.path == journals:
            continue
        paths = sorted(out.path.rglob("*")) if out.path.is_dir() else [out.path]
        for path in paths:
            if not path.is_file() or is_inside_model(path, out.path):
                continue
            if path.suffix in SUFFIXES and path.stat().st_size <= MAX_BYTES:
                within = path.relative_to(out.path).parent if out.path.is_dir() else Path()
                yield path, None if within == Path() else within.as_posix()
