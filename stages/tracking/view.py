"""MLflow as a view of the results that dvc.lock names, and of the run records of their executions.

One run for one execution of a stage, found again by its execution id: its parameters, curves and
headline numbers, small files and the first rows of completions; weights where it is asked for. One
more for dvc.lock as a whole, the manifest, which is what users compare: every parameter, the
headline numbers, and for each stage the run that made it. While a stage runs, `follow_running` may
send the new points of its journal to the run that `sync_entries` completes when it has ended.
"""

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, RunTag

from stages.runtime import identity, journal
from stages.runtime.checkout import locate_checkout
from stages.tracking import artifacts, headlines, lockfile, store
from stages.tracking.lockfile import Entry
from stages.tracking.store import Store, escape_key, to_milliseconds

REPORT = Path("data/report")
SECONDS = 3.0
"""Between two looks at the journals of running stages."""
SECONDS_OF_A_STEP = 60.0
EXECUTION = "posttrain.execution_id"
ELSEWHERE = "Computed on another machine, which has the run record: times, host and versions."
logger = logging.getLogger(__name__)
Runs = dict[str, tuple[str, dict[str, Any]]]
"""(MLflow run id, run.json) of every stage that has journals."""


def sync_entries(entries: list[Entry]) -> int:
    """Add what MLflow lacks; how many runs were added."""
    runs: Runs = {}
    added = 0
    with store.connect(locate_checkout()) as target:
        for entry in entries:
            if (record := lockfile.read_record(entry)) is not None:
                run_id, is_new = sync_stage(target, entry, record)
                runs[entry.stage] = (run_id, record)
                added += is_new
        if runs:
            added += sync_manifest(target, entries, runs)
    return added


def sync_manifest(store: Store, entries: list[Entry], runs: Runs) -> bool:
    """Log the manifest of these entries, all of dvc.lock; whether it was added now."""
    lock = lockfile.hash_entries(entries)
    run_id, is_new = store.run(
        "posttrain.manifest",
        lock,
        name=f"manifest {os.environ.get('DVC_EXP_NAME', lock[:8])}",
        started=min(record["started"] for _, record in runs.values()),
        tags={"stage": "manifest"},
    )
    if not is_new:
        return False
    ended = max(to_milliseconds(record["ended"]) for _, record in runs.values())
    store.log_params(run_id, {k: value for entry in entries for k, value in entry.params.items()})
    # A tag's name may not hold `@`.
    tags = {f"posttrain.run.{name.replace('@', '/')}": run_id for name, (run_id, _) in runs.items()}
    if "compare" in runs:
        numbers = headlines.read_report_numbers(REPORT / "metrics.json")
        metrics = [Metric(escape_key(name), value, ended, 0) for name, value in numbers.items()]
        store.log(run_id, "metrics", metrics)
        if (commit := runs["compare"][1]["git_commit"]) is not None:
            tags["mlflow.source.git.commit"] = commit
        if (verdict := REPORT / "verdict.txt").is_file():
            tags["mlflow.note.content"] = verdict.read_text(encoding="utf-8")
    store.log(run_id, "tags", [RunTag(name, value) for name, value in tags.items()])
    if (chosen := headlines.choose_best(entries, runs)) is not None:
        artifacts.mark_best(store, runs[chosen.stage][0], chosen)
    store.complete(run_id, ended)
    return True


def sync_stage(store: Store, entry: Entry, record: dict[str, Any]) -> tuple[str, bool]:
    """The run's id and whether it was added now; it is marked complete last."""
    tags = _run_tags(entry, record)
    if entry.record is None and (
        run_id := store.find_complete("posttrain.result_hash", entry.result_hash)
    ):
        return run_id, False  # whoever computed it has logged it into this store
    run_id, is_new = store.run(
        EXECUTION,
        record["execution_id"],
        name=entry.stage.replace("@", " "),
        started=record["started"],
        tags=tags,
    )
    if is_new:
        store.log(run_id, "tags", [RunTag(name, value) for name, value in tags.items()])
        store.log_params(run_id, entry.params)
        # `follow_running` may have sent steps that were then done again
        num_logged = Counter(store.steps(run_id) if record["attempt"] > 1 else ())
        store.log(run_id, "metrics", list(_drop_logged(_stage_metrics(entry, record), num_logged)))
        artifacts.log_inputs(store, run_id, entry)
        artifacts.log_files(store, run_id, entry)
        artifacts.log_models(store, run_id, entry)
        store.complete(run_id, to_milliseconds(record["ended"]))
    return run_id, is_new


def _run_tags(entry: Entry, record: dict[str, Any]) -> dict[str, str]:
    tags = _grouping_tags(entry.stage) | {
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
        "mlflow.note.content": ELSEWHERE if record["seconds"] is None else None,
    }
    return {name: str(value) for name, value in tags.items() if value is not None}


def _grouping_tags(stage: str) -> dict[str, str]:
    """What the list of runs is grouped by."""
    kind, _, row = stage.partition("@")
    return {"stage": kind, "posttrain.stage": stage} | ({"row": row} if row else {})


def _stage_metrics(entry: Entry, record: dict[str, Any]) -> list[Metric]:
    ended = to_milliseconds(record["ended"])
    final = headlines.average_headlines(entry)
    for name in ("seconds", "peak_memory_bytes"):
        if record[name] is not None:
            final[f"run/{name}"] = record[name]
    metrics = [Metric(escape_key(name), value, ended, 0) for name, value in final.items()]
    folder = entry.record or entry.journals
    assert folder is not None
    for path in sorted(folder.glob("journal*.jsonl")):
        # journal-seed-0.jsonl: its curves are `seed-0/loss/nll`
        metrics += _read_points(
            path.stem.removeprefix("journal").removeprefix("-"), journal.read_rows(path), ended
        )
    return metrics


def _drop_logged(
    metrics: Iterable[Metric], num_logged: Counter[tuple[str, int]]
) -> Iterator[Metric]:
    for metric in metrics:
        num_logged[metric.key, metric.step] -= 1
        if num_logged[metric.key, metric.step] < 0:
            yield metric


def _read_points(seed: str, rows: Iterable[journal.JournalRow], ended: int = 0) -> Iterator[Metric]:
    """The points of a journal's rows; `ended`, in milliseconds, where they have no times."""
    above = f"{seed}/" if seed else ""
    for row in rows:
        for name, value in row.metrics.items():
            yield Metric(
                escape_key(f"{above}{name}"), value, int(row.time * 1000) or ended, row.index
            )


def follow_running() -> None:
    """Send the new points of running stages to MLflow, every few seconds, until interrupted.

    It only reads, holds nothing that a stage waits for, and may fail or end at any time.
    """
    last: dict[str, dict[str, int]] = {}
    warning = ""
    while True:
        time.sleep(SECONDS)
        try:
            if folders := find_running():
                with store.connect(locate_checkout()) as target:
                    for folder in folders:
                        send_points(target, folder, last)
            warning = ""
        except store.OUTAGES as error:
            if not warning:
                warning = store.describe_outage(error, "stages.track")
                logger.warning("%s This goes on trying.", warning)


def find_running() -> list[Path]:
    """The folders of unfinished executions that wrote something of late; none of killed ones."""
    folders: set[Path] = set()
    for pattern in ("*/*.json*", "*/seed-*/journal.jsonl"):
        for path in identity.PIPE.glob(pattern):
            with suppress(FileNotFoundError):  # a stage that ends removes its folder
                if time.time() - path.stat().st_mtime < SECONDS_OF_A_STEP:
                    folders.add(identity.PIPE / path.parts[1])
    return sorted(folder for folder in folders if (folder / "exec.json").exists())


def send_points(store: Store, folder: Path, last: dict[str, dict[str, int]]) -> None:
    """Send what the journals of an unfinished execution say and MLflow lacks, but its times.

    `last` is the last step of each metric that a run has. A resumed attempt cuts its journals back
    to its checkpoint, and does some steps again.
    """
    points: list[Metric] = []
    with suppress(FileNotFoundError):  # it has ended; `sync_entries` sends the rest
        execution = json.loads((folder / "exec.json").read_text(encoding="utf-8"))
        for path in [folder / "journal.jsonl", *sorted(folder.glob("seed-*/journal.jsonl"))]:
            points += _read_points(
                path.parent.name if path.parent != folder else "", journal.read_rows(path)
            )
        stage, started = execution["stage"], (folder / "exec.json").stat().st_mtime
        if ":" in stage:  # of a dvc.yaml other than the pipeline's
            return
        run_id, lacks = store.run(
            EXECUTION,
            execution["execution_id"],
            name=stage.replace("@", " "),
            started=datetime.fromtimestamp(started, UTC).isoformat(),
            tags=_grouping_tags(stage),
        )
        if lacks:
            last_steps = last.setdefault(run_id, dict(sorted(store.steps(run_id))))
            points = [
                p
                for p in points
                if journal.TIMES not in p.key and p.step > last_steps.get(p.key, -1)
            ]
            store.log(run_id, "metrics", points)
            last_steps |= {point.key: point.step for point in points}
            is_failed = (folder / "failed.json").exists()
            store.client.update_run(run_id, "FAILED" if is_failed else "RUNNING")
