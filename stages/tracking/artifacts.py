"""Artifacts of a stage's run in MLflow: small files and completions.

Weights are not copied, unless POSTTRAIN_TRACK_WEIGHTS is 1: `dvc checkout` at the run's commit
restores them.
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS

from stages.tracking import completions
from stages.tracking.completions import Table
from stages.tracking.lockfile import Entry
from stages.tracking.store import Store

SUFFIXES = {".md", ".png", ".svg", ".csv", ".json", ".html", ".txt"}
MAX_BYTES = 4_000_000
OF_MODELS = {"model", "checkpoints"}
"""Names of folders with models."""


def find_policies(entry: Entry) -> Iterator[Path]:
    """Folder of each policy that the stage trained, one per seed."""
    for out in entry.outs:
        if out.path.name == "model":
            yield from sorted(path for path in out.path.glob("*") if path.name.isdigit())


def log_files(store: Store, run_id: str, entry: Entry) -> None:
    """Log small files, tables of completions, and, if asked for, the weights."""
    for path, folder in find_small_files(entry):
        store.client.log_artifact(run_id, str(path), folder)
    log_tables(store, run_id, completions.read_tables(entry))
    if os.environ.get("POSTTRAIN_TRACK_WEIGHTS") == "1":
        for path in find_policies(entry):
            store.client.log_artifacts(run_id, str(path), f"model/{path.name}")


def log_tables(store: Store, run_id: str, tables: Iterable[tuple[str, Table]]) -> None:
    """Log tables with their names, so that MLflow's pages show them as tables."""
    shown = []
    for name, table in tables:
        # Not with `log_table`, which appends to a table that exists.
        shown.append({"path": f"completions/{name}.json", "type": "table"})
        store.client.log_text(run_id, json.dumps(table), shown[-1]["path"])
    if shown:
        store.client.set_tag(run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps(shown))


def find_small_files(entry: Entry) -> Iterator[tuple[Path, str | None]]:
    """(file, folder in the run) of reports, plots, metrics and the run record; no file of a model.

    If the run record is on another machine, the journals replace it.
    """
    journals = entry.journals
    if (record := entry.record or journals) is not None:
        yield from ((path, "run") for path in sorted(record.iterdir()))
    for out in entry.outs:
        if out.path == journals:
            continue
        is_folder = out.path.is_dir()
        for path in sorted(out.path.rglob("*")) if is_folder else [out.path]:
            within = path.relative_to(out.path).parent if is_folder else Path()
            if OF_MODELS & {out.path.name, *within.parts} or not path.is_file():
                continue
            if path.suffix in SUFFIXES and path.stat().st_size <= MAX_BYTES:
                yield path, None if within == Path() else within.as_posix()
