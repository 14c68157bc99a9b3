"""MLflow as a view of the run records that dvc.lock names.

One run for one execution of a stage, found again by its execution id: its parameters, curves and
headline numbers, small files and the first rows of completions; weights where it is asked for.
Beside these there is one for dvc.lock as a whole, the manifest, which is what users compare: it
holds every parameter, the headline numbers, and for each stage the run that made it. A cached stage
points at the run that produced it, nothing is copied.
"""

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS

from stages.runtime import journal
from stages.tracking import headlines, lockfile, models, store
from stages.tracking.lockfile import Artifact, Entry
from stages.tracking.store import Store, key, milliseconds

MAX_SECONDS = 300.0
"""After so long the rest is left to the next call: a slow server must not hold a pipeline."""
REPORT = Path("data/report")
SUFFIXES = {".md", ".png", ".svg", ".csv", ".json", ".html", ".txt"}
MAX_BYTES = 4_000_000
MAX_DIGEST = 36
TABLES = {"rollouts.jsonl", "test.jsonl", "test_greedy.jsonl", "train.jsonl", "verdicts.jsonl"}
MAX_ROWS = 50
Runs = dict[str, tuple[str, dict[str, Any]]]
"""(MLflow run id, run.json) of every stage that has a run record."""


def sync(entries: list[Entry]) -> int:
    """Add what MLflow lacks; how many runs were added. One of `store.OUTAGES` if it is too slow."""
    deadline = time.monotonic() + MAX_SECONDS
    runs: Runs = {}
    added = 0
    with store.connect(Path.cwd()) as target:
        for entry in entries:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the store took longer than {MAX_SECONDS:.0f} s")
            if (record := lockfile.record(entry)) is not None:
                run_id, is_new = sync_stage(target, entry, record)
                runs[entry.stage] = (run_id, record)
                added += is_new
        if runs:
            added += sync_manifest(target, entries, runs)
    return added


def sync_manifest(store: Store, entries: list[Entry], runs: Runs) -> bool:
    """Log the manifest of these entries, all of dvc.lock; whether it was added now."""
    lock = lockfile.digest(entries)
    run_id, is_new = store.run(
        "posttrain.manifest",
        lock,
        name=f"manifest {lock[:8]}",
        started=min(record["started"] for _, record in runs.values()),
        tags={"stage": "manifest"},
    )
    if not is_new:
        return False
    ended = max(milliseconds(record["ended"]) for _, record in runs.values())
    store.log_params(run_id, {k: value for entry in entries for k, value in entry.params.items()})
    # A tag's name may not hold `@`.
    tags = {f"posttrain.run.{name.replace('@', '/')}": made for name, (made, _) in runs.items()}
    if "compare" in runs:
        found = headlines.of_report(REPORT / "metrics.json")
        metrics = [Metric(key(name), value, ended, 0) for name, value in found.items()]
        store.log(run_id, "metrics", metrics)
        if (commit := runs["compare"][1]["git_commit"]) is not None:
            tags["mlflow.source.git.commit"] = commit
        if (verdict := REPORT / "verdict.txt").is_file():
            tags["mlflow.note.content"] = verdict.read_text(encoding="utf-8")
    store.log(run_id, "tags", [RunTag(name, value) for name, value in tags.items()])
    if (chosen := headlines.best(entries, runs)) is not None:
        models.mark_best(store, runs[chosen.stage][0], chosen)
    store.complete(run_id, ended)
    return True


def sync_stage(store: Store, entry: Entry, record: dict[str, Any]) -> tuple[str, bool]:
    """The run's id and whether it was added now; it is marked complete last."""
    run_id, is_new = store.run(
        "posttrain.execution_id",
        record["execution_id"],
        name=entry.stage.replace("@", " "),
        started=record["started"],
        tags=_tags(entry, record),
    )
    if is_new:
        store.log_params(run_id, entry.params)
        store.log(run_id, "metrics", _metrics(entry, record))
        if inputs := [_dataset(dep) for dep in entry.deps if dep.path.parts[0] == "data"]:
            store.client.log_inputs(run_id, inputs)
        _log_files(store, run_id, entry)
        models.log(store, run_id, entry)
        store.complete(run_id, milliseconds(record["ended"]))
    return run_id, is_new


def _tags(entry: Entry, record: dict[str, Any]) -> dict[str, str]:
    stage, _, row = entry.stage.partition("@")
    tags = {
        # what the list of runs is grouped by
        "stage": stage,
        "row": row or None,
        "posttrain.stage": entry.stage,
        "posttrain.input_key": entry.input_key,
        "posttrain.lock_hash": entry.lock_hash,
        "posttrain.result_hash": entry.result_hash,
        **{
            f"posttrain.{name}": record[name] for name in ("attempt", "git_dirty", "host", "device")
        },
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
        metrics += [
            Metric(key(f"{above}{name}"), value, int(row.time * 1000), row.index)
            for row in journal.read(path)
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
    shown = []
    for name, table in tables(entry):
        # Not by `log_table`, which appends to a table that exists.
        shown.append({"path": f"completions/{name}.json", "type": "table"})
        store.client.log_text(run_id, json.dumps(table), shown[-1]["path"])
    if shown:
        store.client.set_tag(run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps(shown))
    if os.environ.get("POSTTRAIN_TRACK_WEIGHTS") == "1":
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
    """(name, `columns` and `data`) of the first rows of the first seed's completions, token ids left out."""
    for out in entry.outs:
        seeds = sorted(path for path in out.path.glob("*") if path.name.isdigit())
        for path in sorted(seeds[0].glob("*.jsonl")) if seeds else []:
            if path.name not in TABLES:
                continue
            with path.open(encoding="utf-8") as file:
                rows = [json.loads(line) for line in itertools.islice(file, MAX_ROWS)]
            if rows:
                names = [name for name, value in rows[0].items() if not isinstance(value, list)]
                data = [[row.get(name) for name in names] for row in rows]
                yield path.stem, {"columns": names, "data": data}
