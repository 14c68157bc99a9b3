"""One MLflow run for one execution of a stage, found again by its execution id."""

import json
import os
from datetime import datetime
from typing import Any

from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    Metric,
    Param,
    Run,
    RunTag,
    ViewType,
)

from stages.runtime import journal
from stages.tracking import files, flat, headlines, models
from stages.tracking.lockfile import Artifact, Entry
from stages.tracking.store import Store

MAX_METRICS = 1000
MAX_PARAMS = 100
MAX_VALUE = 6000
MAX_DIGEST = 36
WEIGHTS = "POSTTRAIN_TRACK_WEIGHTS"
"""Environment variable: `1` copies checkpoints into MLflow too."""

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


def milliseconds(time: str) -> int:
    """An ISO time as MLflow counts it."""
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def sync(store: Store, entry: Entry, record: dict[str, Any]) -> tuple[str, bool]:
    """The run's id and whether it was added now.

    A run is marked complete last; one that is not (the store went away half-way) is filled
    again, which MLflow takes without duplicates.
    """
    run = find(store, ID, record["execution_id"])
    if run is not None and (COMPLETE in run.data.tags or run.info.lifecycle_stage != "active"):
        return run.info.run_id, False
    if run is None:
        run = store.client.create_run(
            store.experiment_id,
            start_time=milliseconds(record["started"]),
            tags=_tags(entry, record),
            run_name=entry.stage.replace("@", " "),
        )
    run_id = run.info.run_id
    _log_numbers(store, run_id, entry, record)
    inputs = [_dataset(dep) for dep in entry.deps if dep.path.parts[0] == "data"]
    if inputs:
        store.client.log_inputs(run_id, inputs)
    _log_files(store, run_id, entry)
    models.log(store, run_id, entry)
    store.client.set_tag(run_id, COMPLETE, "true")
    store.client.set_terminated(run_id, "FINISHED", milliseconds(record["ended"]))
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


def _log_numbers(store: Store, run_id: str, entry: Entry, record: dict[str, Any]) -> None:
    log_params(store, run_id, entry.params)
    ended = milliseconds(record["ended"])
    final = headlines.of(entry) | {"run/seconds": record["seconds"]}
    if record["peak_memory_bytes"] is not None:
        final["run/peak_memory_bytes"] = record["peak_memory_bytes"]
    metrics = [Metric(flat.name(name), value, ended, 0) for name, value in final.items()]
    assert entry.run_folder is not None
    for path in sorted(entry.run_folder.glob("journal*.jsonl")):
        # journal-seed-0.jsonl: its curves are `seed-0/loss/nll`
        above = f"{path.stem.removeprefix('journal-')}/" if path.stem != "journal" else ""
        for row in journal.read(path):
            time = int(row.time * 1000)
            metrics += [
                Metric(flat.name(f"{above}{name}"), value, time, row.index)
                for name, value in row.metrics.items()
            ]
    for batch in flat.batches(metrics, MAX_METRICS):
        store.client.log_batch(run_id, metrics=batch)


def log_params(store: Store, run_id: str, params: dict[str, Any]) -> None:
    """Parameters in batches, long values cut."""
    items = [Param(flat.name(name), str(value)[:MAX_VALUE]) for name, value in params.items()]
    for batch in flat.batches(items, MAX_PARAMS):
        store.client.log_batch(run_id, params=batch)


def log_tags(store: Store, run_id: str, tags: dict[str, str]) -> None:
    """Tags in batches."""
    items = [RunTag(name, value) for name, value in tags.items()]
    for batch in flat.batches(items, MAX_PARAMS):
        store.client.log_batch(run_id, tags=batch)


def _dataset(dep: Artifact) -> DatasetInput:
    path = dep.path.as_posix()
    dataset = Dataset(
        name=path,
        digest=dep.digest[:MAX_DIGEST],
        source_type="dvc",
        source=json.dumps({"path": path, "md5": dep.digest}),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "input")])


def _log_files(store: Store, run_id: str, entry: Entry) -> None:
    for path, folder in files.small(entry):
        store.client.log_artifact(run_id, str(path), folder)
    logged = {file.path for file in store.client.list_artifacts(run_id, "completions")}
    for name, columns in files.tables(entry):
        # log_table appends to a table that exists.
        if f"completions/{name}.json" not in logged:
            store.client.log_table(run_id, columns, f"completions/{name}.json")
    if os.environ.get(WEIGHTS) == "1":
        for path, _ in files.checkpoints(entry):
            store.client.log_artifacts(run_id, str(path), f"model/{path.name}")
