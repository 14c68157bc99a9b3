"""MLflow as a view of the results that dvc.lock names, and of the run records of their executions.

Each execution of a stage has a run, found again by its execution id: parameters, curves, headline
numbers, small files and some completions; weights on request. Another run, the manifest, is for
dvc.lock as a whole, and is the one that users compare: every parameter, the headline numbers, and
for each stage the run that made it. Its children are the runs of stages that were new in it. While
a stage runs, `follow_running` may send the new points of its journal to the run that
`sync_entries` completes when it has ended.
"""

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from mlflow.entities import Metric
from mlflow.utils.mlflow_tags import MLFLOW_GIT_COMMIT, MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NOTE

from stages.config import read_yaml
from stages.runtime import identity, journal
from stages.runtime.checkout import locate_checkout
from stages.runtime.journal import JournalRow
from stages.tracking import artifacts, headlines, lockfile, store
from stages.tracking.completions import ROLLOUTS, read_rollouts, to_table
from stages.tracking.descriptions import describe_manifest, describe_stage, name_run
from stages.tracking.lockfile import Entry
from stages.tracking.store import Store, TrackedRun, escape_key, to_milliseconds

REPORT = Path("data/report")
SECONDS = 3.0
"""Interval at which the journals of running stages are read."""
SECONDS_OF_A_STEP = 60.0
EXECUTION = "posttrain.execution_id"
ELSEWHERE = "Computed on another machine, which has the run record: times, host and versions."
PIPELINE_RUN = "pipeline_run"
"""Tag that a manifest shares with the runs of stages that were new in it."""
SYSTEM = "system/"
"""Prefix of metrics that MLflow shows on a separate page."""
JOURNAL_OF_SEED = "journal-seed-"
logger = logging.getLogger(__name__)
Runs = dict[str, tuple[TrackedRun, dict[str, Any]]]
"""The run in MLflow, and run.json, of every stage that has journals."""


def sync_entries(entries: list[Entry], studies: Sequence[Entry] = ()) -> tuple[int, str]:
    """Add what MLflow lacks; return the number of added runs and the address of their page.

    Studies belong to no manifest: they read a run of the pipeline, which has one. If MLflow refuses
    the run of a stage, the manifest lacks it until a later call adds it.
    """
    runs: Runs = {}
    added = num_records = 0
    with store.connect(locate_checkout()) as target:
        for entry in entries:
            if (record := lockfile.read_record(entry)) is not None:
                num_records += 1
                with store.naming_refusals(entry.stage):
                    run = sync_stage(target, entry, record)
                    runs[entry.stage] = (run, record)
                    added += run.is_new
        if runs:
            with store.naming_refusals("the whole, its manifest"):
                is_whole = len(runs) == num_records
                added += sync_manifest(target, entries, runs, is_whole=is_whole)
                stale = lockfile.find_stale(entries)
                for entry in entries:  # an undone change has its manifest already
                    if entry.stage not in stale:
                        _log_evaluation(target, entry, runs)
        for entry in studies:
            if (record := lockfile.read_record(entry)) is not None:
                with store.naming_refusals(entry.stage):
                    added += sync_study(target, entry, record, entries, runs)
    # without it MLflow shows the experiment's pages for traces
    path = f"#/experiments/{target.experiment_id}/runs?workflowType=machine_learning"
    return added, store.find_page(path)


def sync_study(
    store: Store, entry: Entry, record: dict[str, Any], entries: list[Entry], runs: Runs
) -> bool:
    """Log the run of a study, with links to the pipeline's; returns whether it was added now."""
    run = sync_stage(store, entry, record)
    if run.is_new:
        ids = {name: of_stage.run_id for name, (of_stage, _) in runs.items()}
        note = describe_stage(entry, entries, ids | {entry.stage: run.run_id}, store.experiment_id)
        store.set_tags(run.run_id, {MLFLOW_RUN_NOTE: note})
    return run.is_new


def sync_manifest(store: Store, entries: list[Entry], runs: Runs, *, is_whole: bool = True) -> bool:
    """Log the manifest of these entries, all of dvc.lock; returns whether it was added now.

    `is_whole`: `runs` has each stage that has a record, so that the manifest is complete; it is not
    while the report is of other policies than those of now, and has no numbers of it. Its
    children are the runs that no earlier manifest has: those of this execution of the pipeline.
    """
    lock = lockfile.hash_entries(entries)
    starts = [record["started"] for run, record in runs.values() if run.may_be_below()]
    name = os.environ.get("DVC_EXP_NAME") or lock[:8]
    manifest = store.run(
        "posttrain.manifest",
        lock,
        name=f"manifest {name}",
        started=min(starts) if starts else max(record["started"] for _, record in runs.values()),
        tags={"stage": "manifest"},
    )
    run_id, ids = manifest.run_id, {stage: run.run_id for stage, (run, _) in runs.items()}
    # If the manifest is complete, a stage was executed again, with the same results.
    parents = (run_id,) if manifest.is_new else ()
    new = {stage: record for stage, (run, record) in runs.items() if run.may_be_below(*parents)}
    for entry in () if manifest.is_deleted else entries:
        if entry.stage in new:
            note = describe_stage(entry, entries, ids, store.experiment_id)
            note += "" if new[entry.stage]["seconds"] is not None else f"\n\n{ELSEWHERE}"
            above = {MLFLOW_PARENT_RUN_ID: run_id, PIPELINE_RUN: lock[:8], MLFLOW_RUN_NOTE: note}
            store.set_tags(ids[entry.stage], above)
    if not manifest.is_new:
        return False
    ended = max(to_milliseconds(record["ended"]) for _, record in runs.values())
    store.log_params(run_id, join_params(entry for entry in entries if entry.stage in runs))
    store.client.log_dict(run_id, ids, "runs.json")
    tags = {PIPELINE_RUN: lock[:8]}
    numbers = dict[str, float]()
    is_current = "compare" not in lockfile.find_stale(entries)
    if "compare" in runs and is_current:
        of_report = headlines.read_report_numbers(REPORT / "metrics.json")
        best = headlines.choose_best(entries)
        accuracy = best and of_report.get(f"accuracy/{best[0]}")
        # MLflow's comparison page plots the first one.
        numbers = ({} if accuracy is None else {"accuracy": accuracy}) | of_report
        if (commit := runs["compare"][1]["git_commit"]) is not None:
            tags[MLFLOW_GIT_COMMIT] = commit
        path = REPORT / "verdict.txt"
        verdict = path.read_text(encoding="utf-8") if path.is_file() else ""
        tags[MLFLOW_RUN_NOTE] = describe_manifest(verdict, of_report, ids, store.experiment_id)
    numbers["run/seconds"] = sum(record["seconds"] or 0.0 for record in new.values())
    store.log_numbers(run_id, numbers, ended)
    store.set_tags(run_id, tags)
    if is_whole and is_current:
        store.complete(run_id, ended)
    return True


def join_params(entries: Iterable[Entry]) -> dict[str, Any]:
    """Parameters of all stages; of one that has several values, since rows replace it, all."""
    values: dict[str, list[Any]] = {}
    for name, value in (item for entry in entries for item in entry.params.items()):
        if value not in values.setdefault(name, []):
            values[name].append(value)
    return {name: of[0] if len(of) == 1 else ", ".join(map(str, of)) for name, of in values.items()}


def _log_evaluation(store: Store, entry: Entry, runs: Runs) -> None:
    """Log the numbers of a policy's evaluation with its training, by whose runs it is compared.

    MLflow shows the number of the last step. So a number that replaces another gets the next step:
    an earlier manifest may have evaluated the policy with other settings.
    """
    kind, _, policy = entry.stage.partition("@")
    if kind == "evaluate" and entry.stage in runs and f"train@{policy}" in runs:
        run, _ = runs[f"train@{policy}"]
        if run.is_deleted:
            return
        ended = to_milliseconds(runs[entry.stage][1]["ended"])
        shown = store.client.get_run(run.run_id).data.metrics
        numbers = {escape_key(name): x for name, x in headlines.average_headlines(entry).items()}

        def count(name: str) -> int:
            return len(store.client.get_metric_history(run.run_id, name)) if name in shown else 0

        points = [
            Metric(name, value, ended, count(name))
            for name, value in numbers.items()
            if shown.get(name) != value
        ]
        store.log(run.run_id, "metrics", points)


def sync_stage(store: Store, entry: Entry, record: dict[str, Any]) -> TrackedRun:
    """Run of a stage, after missing parts were added; it is marked complete last."""
    tags = _run_tags(entry, record)
    if entry.record is None and (
        run := store.find_complete("posttrain.result_hash", entry.result_hash)
    ):
        return run  # the machine that computed it has logged it into this store
    run = store.run(
        EXECUTION,
        record["execution_id"],
        name=name_run(entry.stage),
        started=record["started"],
        tags=tags,
    )
    if run.is_new:
        run_id = run.run_id
        store.set_tags(run_id, tags)
        store.log_params(run_id, entry.params)
        # `follow_running` may have sent steps that were then repeated
        num_logged = Counter(store.steps(run_id) if record["attempt"] > 1 else ())
        store.log(run_id, "metrics", list(_drop_logged(_stage_metrics(entry, record), num_logged)))
        artifacts.log_files(store, run_id, entry)
        store.complete(run_id, to_milliseconds(record["ended"]))
    return run


def _run_tags(entry: Entry, record: dict[str, Any]) -> dict[str, str]:
    """Tags by which runs are grouped and searched; those without a value are left out."""
    tags = _grouping_tags(entry.stage) | {
        "posttrain.input_key": entry.input_key,
        "posttrain.lock_hash": entry.lock_hash,
        "posttrain.result_hash": entry.result_hash,
        **{
            f"posttrain.{name}": record[name] for name in ("attempt", "git_dirty", "host", "device")
        },
        **name_seeds(record),
        "posttrain.cpu": (record.get("cpu") or {}).get("model"),
        MLFLOW_GIT_COMMIT: record["git_commit"],
        "mlflow.source.name": entry.command,
        "mlflow.source.type": "JOB",
    }
    row = lockfile.parse_command(entry.command)
    if row is not None:
        tags |= {"method": row.by, "preset": row.preset, "from": row.policy, "on": row.on,
                 "control": row.control}  # fmt: skip
    return {name: str(value) for name, value in tags.items() if value not in (None, "")}


def name_seeds(record: dict[str, Any]) -> dict[str, Any]:
    """Tags with time and place of the computation of finished seeds that a run took over."""
    return {
        f"posttrain.seed-{seed}.{name}": of_seed[name]
        for seed, of_seed in record.get("seeds", {}).items()
        for name in ("host", "device", "started", "seconds")
    }


def _grouping_tags(stage: str) -> dict[str, str]:
    """Tags by which the list of runs is grouped."""
    kind, _, row = identity.name_of(stage).partition("@")
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
    metrics += _to_metrics("", journal.read_rows(folder / "journal.jsonl"), ended)
    for path in sorted(folder.glob("usage-*.jsonl")):
        seed = path.stem.removeprefix("usage-")
        metrics += _to_metrics(f"{SYSTEM}{seed}/", journal.read_rows(path))
    paths = sorted(folder.glob(f"{JOURNAL_OF_SEED}*.jsonl"))
    of_seeds = {path.stem.removeprefix("journal-"): path for path in paths}
    return metrics + _seed_metrics(of_seeds, len(paths), ended)


def _seed_metrics(paths: Mapping[str, Path], num_seeds: int, ended: int = 0) -> list[Metric]:
    """The curves of the seeds' journals, `seed-0/loss/nll`, and their mean, `loss/nll`."""
    of_seeds = [_to_metrics("", journal.read_rows(path), ended) for path in paths.values()]
    metrics = [
        Metric(f"{seed}/{point.key}", point.value, point.timestamp, point.step)
        for seed, points in zip(paths, of_seeds, strict=True)
        for point in points
    ]
    return metrics + (average_seeds(of_seeds) if len(paths) == num_seeds else [])


def average_seeds(points_by_seed: Sequence[Sequence[Metric]]) -> list[Metric]:
    """Mean over seeds of each metric at each step that all of them have."""
    points: dict[tuple[str, int], list[list[Metric]]] = {}
    for number, of_seed in enumerate(points_by_seed):
        for point in of_seed:
            places = points.setdefault((point.key, point.step), [[] for _ in points_by_seed])
            places[number].append(point)
    return [
        Metric(key, fmean(point.value for point in same), max(p.timestamp for p in same), step)
        for (key, step), places in points.items()
        for same in zip(*places, strict=False)  # a step may be logged by several loops
    ]


def _drop_logged(
    metrics: Iterable[Metric], num_logged: Counter[tuple[str, int]]
) -> Iterator[Metric]:
    for metric in metrics:
        num_logged[metric.key, metric.step] -= 1
        if num_logged[metric.key, metric.step] < 0:
            yield metric


def _to_metrics(prefix: str, rows: Iterable[JournalRow], ended: int = 0) -> list[Metric]:
    """Points of a journal's rows; `ended`: time in milliseconds of rows without times."""
    return [
        Metric(escape_key(f"{prefix}{name}"), value, int(row.time * 1000) or ended, row.index)
        for row in rows
        for name, value in row.metrics.items()
    ]


def follow_running() -> None:
    """Send the new points of running stages to MLflow, every few seconds, until interrupted.

    Only reads, holds nothing that a stage waits for, and may fail or end at any time.
    """
    last: dict[str, dict[str, int]] = {}
    warning, refused = "", set[str]()
    while True:
        time.sleep(SECONDS)
        try:
            if folders := find_running():
                with store.connect(locate_checkout()) as target:
                    for folder in folders:
                        with store.naming_refusals(folder.name, refused):
                            send_points(target, folder, last)
            warning = ""
        except store.OUTAGES as error:
            if not warning:
                warning = store.describe_outage(error, "stages.track")
                logger.warning("%s This goes on trying.", warning)


def find_running() -> list[Path]:
    """Folders of unfinished executions with recent writes, so none of killed ones."""
    folders: set[Path] = set()
    for pattern in ("*/*.json*", "*/seed-*/journal.jsonl"):
        for path in identity.PIPE.glob(pattern):
            with suppress(FileNotFoundError):  # a stage that ends removes its folder
                if time.time() - path.stat().st_mtime < SECONDS_OF_A_STEP:
                    folders.add(identity.PIPE / path.parts[1])
    return sorted(folder for folder in folders if (folder / "exec.json").exists())


def send_points(store: Store, folder: Path, last: dict[str, dict[str, int]]) -> None:
    """Send the metrics of an unfinished execution's journals that MLflow lacks, without times.

    Also sends its sampled completions. `last`: run in MLflow -> the last step that it has of each
    metric and of the completions. A resumed attempt truncates its journals to its checkpoint, and
    repeats some steps.
    """
    num_seeds = len(read_yaml()["seeds"])
    with suppress(FileNotFoundError):  # it has ended; `sync_entries` sends the rest
        execution = json.loads((folder / "exec.json").read_text(encoding="utf-8"))
        points = _to_metrics("", journal.read_rows(folder / "journal.jsonl"))
        paths = sorted(folder.glob("seed-*/journal.jsonl"))
        points += _seed_metrics({path.parent.name: path for path in paths}, num_seeds)
        stage, started = execution["stage"], (folder / "exec.json").stat().st_mtime
        if ":" in stage:  # of a dvc.yaml other than the pipeline's
            return
        run = store.run(
            EXECUTION,
            execution["execution_id"],
            name=name_run(stage),
            started=datetime.fromtimestamp(started, UTC).isoformat(),
            tags=_grouping_tags(stage),
        )
        if run.is_new:
            run_id = run.run_id
            last_steps = last.setdefault(run_id, dict(sorted(store.steps(run_id))))
            points = [
                p
                for p in points
                if journal.TIMES not in p.key and p.step > last_steps.get(p.key, -1)
            ]
            store.log(run_id, "metrics", points)
            last_steps |= {point.key: point.step for point in points}
            for path in sorted(folder.glob(f"seed-*/loop/**/{ROLLOUTS}"))[:1]:  # of the first seed
                rows = read_rollouts(path)
                if rows and rows[-1]["step"] != last_steps.get(ROLLOUTS):
                    artifacts.log_tables(store, run_id, [(path.stem, to_table(rows))])
                    last_steps[ROLLOUTS] = rows[-1]["step"]
            is_failed = (folder / "failed.json").exists()
            store.client.update_run(run_id, "FAILED" if is_failed else "RUNNING")
