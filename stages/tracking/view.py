"""Bring MLflow up to date with the run records that dvc.lock names.

Beside a run for each stage there is one for dvc.lock as a whole, the manifest, which is what users
compare: it holds every parameter, the headline numbers, and for each stage the run that made it. A
cached stage points at the run that produced it, nothing is copied.
"""

import time
from pathlib import Path
from typing import Any

from stages.tracking import headlines, lockfile, models, stage_run, store
from stages.tracking.lockfile import Entry
from stages.tracking.store import Store

MAX_SECONDS = 300.0
"""After so long the rest is left to the next call: a slow server must not hold a pipeline."""
MANIFEST = "posttrain.manifest"
COMPARISON = "compare"
REPORT = Path("data/report")
Runs = dict[str, tuple[str, dict[str, Any]]]
"""(MLflow run id, run.json) of every stage that has a run record."""


def sync(entries: list[Entry]) -> int:
    """Add what MLflow lacks; how many runs were added.

    Raises:
        TimeoutError or another of `store.OUTAGES`: the store is absent or too slow.
    """
    deadline = time.monotonic() + MAX_SECONDS
    runs: Runs = {}
    added = 0
    with store.exclusive():
        target = store.connect(Path.cwd())
        for entry in entries:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the store took longer than {MAX_SECONDS:.0f} s")
            record = lockfile.record(entry)
            if record is not None:
                run_id, is_new = stage_run.sync(target, entry, record)
                runs[entry.stage] = (run_id, record)
                added += is_new
        if runs:
            added += sync_manifest(target, entries, runs)
    return added


def sync_manifest(store: Store, entries: list[Entry], runs: Runs) -> bool:
    """Log the manifest of these entries, all of dvc.lock; whether it was added now."""
    lock = lockfile.digest(entries)
    run = stage_run.find(store, MANIFEST, lock)
    if stage_run.is_settled(run):
        return False
    if run is None:
        run = store.client.create_run(
            store.experiment_id,
            start_time=min(stage_run.milliseconds(one["started"]) for _, one in runs.values()),
            tags={MANIFEST: lock, "stage": "manifest"},
            run_name=f"manifest {lock[:8]}",
        )
    run_id = run.info.run_id
    ended = max(stage_run.milliseconds(record["ended"]) for _, record in runs.values())
    params = {name: value for entry in entries for name, value in entry.params.items()}
    stage_run.log_params(store, run_id, params)
    # A tag's name may not hold `@`.
    tags = {f"posttrain.run.{name.replace('@', '/')}": made for name, (made, _) in runs.items()}
    if COMPARISON in runs:
        for name, value in sorted(headlines.of_report(REPORT / "metrics.json").items()):
            store.client.log_metric(run_id, stage_run.key(name), value, timestamp=ended)
        if (commit := runs[COMPARISON][1]["git_commit"]) is not None:
            tags["mlflow.source.git.commit"] = commit
        if (verdict := REPORT / "verdict.txt").is_file():
            tags["mlflow.note.content"] = verdict.read_text(encoding="utf-8")
    stage_run.log_tags(store, run_id, tags)
    chosen = headlines.best(entries, runs)
    if chosen is not None:
        models.mark_best(store, runs[chosen.stage][0], chosen)
    stage_run.complete(store, run_id, ended)
    return True
