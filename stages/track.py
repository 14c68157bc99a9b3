"""Add finished stages to MLflow, and print times and verdict.

Reads dvc.lock, that of studies, `data/journals/`, `data/runs/` and `data/report/`; writes
`data/tracked/manifest.json`, the result hash of each stage with journals (deterministic: it does
not depend on MLflow). Brings MLflow up to date (`tracking/view`), as the last stage of `dvc repro`
or as a command; a second call adds nothing. If the store cannot be reached, the call says so and
succeeds: the next one adds the missing runs. At its end it prints the seconds of each stage, the
verdict, and the path of the report.

    python -m stages.track
    python -m stages.track --live

`--live`, started beside `dvc repro`, shows the metrics of running stages in MLflow, at most ten
seconds old, until it is interrupted. Nothing depends on it.

Environment: MLFLOW_TRACKING_URI (default: mlflow.db in the repository), MLFLOW_EXPERIMENT_NAME,
POSTTRAIN_TRACK_WEIGHTS=1 to copy checkpoints into MLflow too.
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stages.runtime import outputs, process
from stages.tracking import lockfile

logger = logging.getLogger(__name__)

MANIFEST = Path("data/tracked/manifest.json")
REPORT = Path("data/report")
SETTINGS = {
    # By default MLflow blocks for four minutes per call if a server is down, and a retried request
    # may be carried out twice.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    # It would print the server's address with its password.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # Read at its import: it would send telemetry.
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""MLflow's timeouts, retries and messages, unless environment variables set them."""


def main(live: str = "") -> None:
    """Write the manifest, bring MLflow up to date, print a summary; or follow running stages."""
    if live not in ("", "--live"):
        raise ValueError(f"expected nothing or --live, found {live!r}")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    process.die_with_dvc("track")
    set_environment()
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)  # nine lines of set-up each time
    from stages.tracking import store, view  # they import MLflow, which reads the settings

    if live:
        with suppress(KeyboardInterrupt):
            view.follow_running()
        return
    entries = lockfile.read_entries()
    write_manifest(entries)
    try:
        added, pages = view.sync_entries(entries, lockfile.read_entries(lockfile.STUDIES))
    except store.OUTAGES as error:
        logger.warning(store.describe_outage(error, "stages.track"))
    else:
        logger.info("MLflow: %d runs added, of now and earlier: %s", added, pages)
    records = {entry.stage: lockfile.read_record(entry) for entry in entries}
    logger.info(
        "%s", describe_runs({name: record for name, record in records.items() if record}, REPORT)
    )


def set_environment() -> None:
    """Set the `SETTINGS` that the environment lacks, before MLflow is imported."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def write_manifest(entries: list[lockfile.Entry]) -> None:
    """Write manifest.json, unless it is up to date.

    It has the stages with journals. This stage depends on journals, so it runs again if one of them
    had other inputs. `plan` and `trace_code` have none; their outputs are inputs of the others.
    """
    results = {entry.stage: entry.result_hash for entry in entries if entry.journals}
    text = json.dumps(results, indent=1, sort_keys=True) + "\n"
    if not MANIFEST.exists() or MANIFEST.read_text(encoding="utf-8") != text:
        with outputs.replace(MANIFEST.parent) as temporary:
            temporary.mkdir()
            (temporary / MANIFEST.name).write_text(text, encoding="utf-8")


def describe_runs(records: Mapping[str, Mapping[str, Any]], report: Path) -> str:
    """Seconds by stage, its rows side by side; then the verdict, and the path of the report."""
    groups: dict[str, dict[str, float]] = {}
    executed = {name: it for name, it in records.items() if it["seconds"] is not None}
    for name, record in executed.items():
        stage, _, row = name.partition("@")
        groups.setdefault(stage, {})[row] = record["seconds"]
    lines = ["seconds of each stage's last run, now or earlier, all seeds:"]
    for stage, rows in groups.items():
        parts = [f"{row} {seconds:.0f}".strip() for row, seconds in rows.items()]
        total = f"{sum(rows.values()):.0f}" if len(rows) > 1 else ""
        lines.append(f"  {stage:<12} {total:>5}  {', '.join(parts)}".rstrip())
    lines.append(f"  {'all':<12} {sum(record['seconds'] for record in executed.values()):>5.0f}")
    if others := len(records) - len(executed):
        lines.append(f"  {others} stages were computed elsewhere: their times are there")
    verdict = report / "verdict.txt"
    if verdict.is_file():
        lines += ["", verdict.read_text(encoding="utf-8").strip()]
    if (report / "report.html").is_file():
        lines += ["", f"The report: {report / 'report.html'}"]
    return "\n".join(lines)


if __name__ == "__main__":
    process.run(main)
