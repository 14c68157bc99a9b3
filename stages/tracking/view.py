"""Bring MLflow up to date with the run records that dvc.lock names."""

import time
from pathlib import Path
from typing import Any

from stages.tracking import lockfile, manifest, stage_run, store

MAX_SECONDS = 300.0
"""After so long the rest is left to the next call: a slow server must not hold a pipeline."""


def sync(entries: list[lockfile.Entry]) -> int:
    """Add what MLflow lacks; how many runs were added.

    Raises:
        TimeoutError or another of `store.OUTAGES`: the store is absent or too slow.
    """
    deadline = time.monotonic() + MAX_SECONDS
    runs: dict[str, tuple[str, dict[str, Any]]] = {}
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
            added += manifest.sync(target, entries, runs)
    return added
