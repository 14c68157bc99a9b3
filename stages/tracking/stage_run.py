"""One MLflow run for one execution of a stage, found again by its execution id.

Copied into it are small files and the first rows of completions; weights where it is asked for.
"""

import itertools
import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag, ViewType

from stages.runtime import journal
from stages.tracking import headlines, models
from stages.tracking.lockfile import Artifact, Entry
from stages.tracking.store import Store

MAX_VALUE = 6000
MAX_DIGEST = 36
WEIGHTS = "POSTTRAIN_TRACK_WEIGHTS"
"""Environment variable: `1` copies checkpoints into MLflow too."""
SUFFIXES = {".md", ".png", ".svg", ".csv", ".json", ".html", ".txt"}
MAX_BYTES = 4_000_000
TABLES = {"rollouts.jsonl", "test.jsonl", "test_greedy.jsonl", "train.jsonl", "verdicts.jsonl"}
"""Files of completions, of which the first rows of the first seed are shown."""
MAX_ROWS = 50

ID = "posttrain.execution_id"
COMPLETE = "posttrain.complete"


def find(store: Store, tag: str, value: str) -> Run | None:
    """The run with a tag, a deleted one too: what a user deleted is not made again."""
    found = store.client.search_runs(
        [store.experiment_id],
        filter_string=f"tags.`{tag}` = '{value}'",
        run_view_type=ViewType.ALL,
        max_results=1,
    )
    return found[0] if found else None


def is_settled(run: Run | None) -> bool:
    """Whether nothing is to be added: the run is complete, or a user deleted it."""
    return run is not None and (COMPLETE in run.data.tags or run.info.lifecycle_stage != "active")


def milliseconds(time: str) -> int:
    """An ISO time as MLflow counts it."""
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def key(text: str) -> str:
    """`text` as a key of MLflow: letters, digits, `_`, `-`, `.`, `/` and space only."""
    return re.sub(r"[^\w\-. /]", "_", text.replace("@", "_at_"))


def log(store: Store, run_id: str, kind: str, items: list[Any]) -> None:
    """Log `metrics`, `params` or `tags`, in batches as large as MLflow takes."""
    size = 1000 if kind == "metrics" else 100
    for start in range(0, len(items), size):
        batch: dict[str, Any] = {kind: items[start : start + size]}
        store.client.log_batch(run_id, **batch)


def log_params(store: Store, run_id: str, params: dict[str, Any]) -> None:
    """Parameters, long values cut."""
    items = [Param(key(name), str(value)[:MAX_VALUE]) for name, value in params.items()]
    log(store, run_id, "params", items)


def log_tags(store: Store, run_id: str, tags: dict[str, str]) -> None:
    """Tags of any number."""
    log(store, run_id, "tags", [RunTag(name, value) for name, value in tags.items()])


def complete(store: Store, run_id: str, ended: int) -> None:
    """Nothing is missing in the run, which ended then (milliseconds)."""
    store.client.set_tag(run_id, COMPLETE, "true")
    store.client.set_terminated(run_id, "FINISHED", ended)


def sync(store: Store, entry: Entry, record: dict[str, Any]) -> tuple[str, bool]:
    """The run's id and whether it was added now.

    A run is marked complete last; one that is not (the store went away half-way) is filled
    again, which MLflow takes without duplicates.
    """
    run = find(store, ID, record["execution_id"])
    if run is not None and is_settled(run):
        return run.info.run_id, False
    if run is None:
        run = store.client.create_run(
            store.experiment_id,
            start_time=milliseconds(record["started"]),
            tags=_tags(entry, record),
            run_name=entry.stage.replace("@", " "),
        )
    run_id = run.info.run_id
    log_params(store, run_id, entry.params)
    log(store, run_id, "metrics", _metrics(entry, record))
    inputs = [_dataset(dep) for dep in entry.deps if dep.path.parts[0] == "data"]
    if inputs:
        store.client.log_inputs(run_id, inputs)
    _log_files(store, run_id, entry)
    models.log(store, run_id, entry)
    complete(store, run_id, milliseconds(record["ended"]))
    return run_id, True


def _tags(entry: Entry, record: dict[str, Any]) -> dict[str, str]:
    stage, _, row = entry.stage.partition("@")
    tags = {
        # what the list of runs is grouped by
        "stage": stage,
        "row": row or None,
        ID: record["execution_id"],
        "posttrain.stage": entry.stage,
        "posttrain.input_key": entry.input_key,
        "posttrain.lock_hash": entry.lock_hash,
        "posttrain.result_hash": entry.result_hash,
        "posttrain.attempt": record["attempt"],
        "posttrain.git_dirty": record["git_dirty"],
        "posttrain.host": record["host"],
        "posttrain.device": record["device"],
        "posttrain.cpu": (record.get("cpu") or {}).get("model"),
        "mlflow.source.git.commit": record["git_commit"],
        "mlflow.source.name": entry.command,
        "mlflow.source.type": "JOB",
    }
    return {name: str(value) for name, value in tags.items() if value is not None}


def _metrics(entry: Entry, record: dict[str, Any]) -> list[Metric]:
    ended = milliseconds(record["ended"])
    final = headlines.of(entry) | {"run/seconds": record["seconds"]}
    if record["peak_memory_bytes"] is not None:
        final["run/peak_memory_bytes"] = record["peak_memory_bytes"]
    metrics = [Metric(key(name), value, ended, 0) for name, value in final.items()]
    assert entry.run_folder is not None
    for path in sorted(entry.run_folder.glob("journal*.jsonl")):
        # journal-seed-0.jsonl: its curves are `seed-0/loss/nll`
        above = f"{path.stem.removeprefix('journal-')}/" if path.stem != "journal" else ""
        for row in journal.read(path):
            time = int(row.time * 1000)
            metrics += [
                Metric(key(f"{above}{name}"), value, time, row.index)
                for name, value in row.metrics.items()
            ]
    return metrics


def _dataset(dep: Artifact) -> DatasetInput:
    path = dep.path.as_posix()
    source = json.dumps({"path": path, "md5": dep.digest})
    dataset = Dataset(name=path, digest=dep.digest[:MAX_DIGEST], source_type="dvc", source=source)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "input")])


def _log_files(store: Store, run_id: str, entry: Entry) -> None:
    for path, folder in small(entry):
        store.client.log_artifact(run_id, str(path), folder)
    logged = {file.path for file in store.client.list_artifacts(run_id, "completions")}
    for name, columns in tables(entry):
        # log_table appends to a table that exists.
        if f"completions/{name}.json" not in logged:
            store.client.log_table(run_id, columns, f"completions/{name}.json")
    if os.environ.get(WEIGHTS) == "1":
        for path, _ in models.checkpoints(entry):
            store.client.log_artifacts(run_id, str(path), f"model/{path.name}")


def small(entry: Entry) -> Iterator[tuple[Path, str | None]]:
    """(file, folder in the run) of reports, plots, metrics and the run record, none of a model."""
    for out in entry.outs:
        paths = sorted(out.path.rglob("*")) if out.path.is_dir() else [out.path]
        record = out.path == entry.run_folder
        for path in paths:
            if not path.is_file() or models.holds(path, out.path):
                continue
            if record or (path.suffix in SUFFIXES and path.stat().st_size <= MAX_BYTES):
                within = path.relative_to(out.path).parent if out.path.is_dir() else Path()
                folder = ("run" / within if record else within).as_posix()
                yield path, None if folder == "." else folder


def tables(entry: Entry) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """(name, columns) of the first rows of every file of completions, token ids left out."""
    for out in entry.outs:
        if out.path == entry.run_folder:
            continue
        seeds = sorted(path for path in out.path.glob("*") if path.name.isdigit())
        for path in sorted(seeds[0].glob("*.jsonl")) if seeds else []:
            if path.name not in TABLES:
                continue
            with path.open(encoding="utf-8") as file:
                rows = [json.loads(line) for line in itertools.islice(file, MAX_ROWS)]
            if rows:
                names = [name for name, value in rows[0].items() if not isinstance(value, list)]
                yield path.stem, {name: [row.get(name) for row in rows] for name in names}
