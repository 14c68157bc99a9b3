"""Show in MLflow what dvc.lock holds: one run for each executed stage, one for the whole.

Reads dvc.lock and every `data/**/run/`; writes `data/track/manifest.json`, the result hash of
each stage (deterministic: it does not depend on MLflow). MLflow is a view of the run records,
brought up to date whenever `python -m stages.track` runs, as the last stage of `dvc repro` or by
hand; a second call adds nothing. When the store cannot be reached, the call says so and succeeds:
nothing is lost, the next call adds what is missing.

Environment: MLFLOW_TRACKING_URI (default: mlflow.db in the repository), MLFLOW_EXPERIMENT_NAME,
POSTTRAIN_TRACK_WEIGHTS=1 to copy checkpoints into MLflow too.
"""

import json
import logging
from pathlib import Path

from stages.runtime import outputs, parent, process
from stages.tracking import lockfile, settings

logger = logging.getLogger(__name__)

MANIFEST = Path("data/track/manifest.json")


def main() -> None:
    """Write the manifest, then bring MLflow up to date."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parent.die_with_dvc("track")
    entries = lockfile.read()
    write_manifest(entries)
    settings.apply()
    from stages.tracking import store, view  # they import MLflow, which reads the settings

    try:
        added = view.sync(entries)
    except store.OUTAGES as error:
        logger.warning(store.outage(error, "stages.track"))
    else:
        logger.info("MLflow: %d runs added", added)


def write_manifest(entries: list[lockfile.Entry]) -> None:
    """Write manifest.json, unless it is right already."""
    results = {entry.stage: entry.result_hash for entry in entries}
    text = json.dumps(results, indent=1, sort_keys=True) + "\n"
    if not MANIFEST.exists() or MANIFEST.read_text(encoding="utf-8") != text:
        with outputs.replace(MANIFEST) as temporary:
            temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    process.run(main)
