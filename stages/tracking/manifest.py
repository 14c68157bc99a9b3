"""One MLflow run for one dvc.lock: what users compare.

It holds every parameter, the headline numbers, and for each stage the run that made it: a
cached stage points at the run that produced it, nothing is copied.
"""

from pathlib import Path
from typing import Any

from stages.tracking import flat, headlines, models, stage_run
from stages.tracking.lockfile import Entry, digest
from stages.tracking.store import Store

TAG = "posttrain.manifest"
COMPARISON = "compare"
REPORT = Path("data/report")


def sync(store: Store, entries: list[Entry], runs: dict[str, tuple[str, dict[str, Any]]]) -> bool:
    """Log the manifest run of these entries; whether it was added now.

    Args:
        store: where.
        entries: all of dvc.lock.
        runs: (MLflow run id, run.json) of every stage that has a run record.
    """
    lock = digest(entries)
    run = stage_run.find(store, TAG, lock)
    if run is not None and (
        stage_run.COMPLETE in run.data.tags or run.info.lifecycle_stage != "active"
    ):
        return False
    started = min(stage_run.milliseconds(record["started"]) for _, record in runs.values())
    ended = max(stage_run.milliseconds(record["ended"]) for _, record in runs.values())
    headline = headlines.of_report(REPORT / "metrics.json") if COMPARISON in runs else {}
    if run is None:
        run = store.client.create_run(
            store.experiment_id,
            start_time=started,
            tags={TAG: lock, "stage": "manifest"},
            run_name=f"manifest {lock[:8]}",
        )
    run_id = run.info.run_id
    params = {name: value for entry in entries for name, value in entry.params.items()}
    stage_run.log_params(store, run_id, params)
    for name, value in sorted(headline.items()):
        store.client.log_metric(run_id, flat.name(name), value, timestamp=ended)
    # A tag's name may not hold `@`.
    tags = {f"posttrain.run.{name.replace('@', '/')}": made for name, (made, _) in runs.items()}
    commit = runs[COMPARISON][1]["git_commit"] if COMPARISON in runs else None
    if commit is not None:
        tags["mlflow.source.git.commit"] = commit
    verdict = REPORT / "verdict.txt"
    if COMPARISON in runs and verdict.is_file():
        tags["mlflow.note.content"] = verdict.read_text(encoding="utf-8")
    stage_run.log_tags(store, run_id, tags)
    _mark_best(store, entries, runs)
    store.client.set_tag(run_id, stage_run.COMPLETE, "true")
    store.client.set_terminated(run_id, "FINISHED", ended)
    return True


def _mark_best(store: Store, entries: list[Entry], runs: dict[str, tuple[str, Any]]) -> None:
    """The alias is the best policy's by its dev problems; without evaluations nobody has it."""
    chosen = headlines.best(entries, runs)
    if chosen is not None:
        models.mark_best(store, runs[chosen.stage][0], chosen)
