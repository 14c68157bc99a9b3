"""Show a comparison at equal tokens in MLflow: one run with its numbers and its verdict.

    python -m stages.track_comparison <name>

No stage of the pipeline: `flows.compare` calls it last. Reads `data/compare/<name>/`. As with
`track`, a second call adds nothing, and a store that cannot be reached costs nothing but this view.
The environment says which store: see `track`.
"""

import logging
import sys
from pathlib import Path

from stages.runtime import process
from stages.tracking import settings

logger = logging.getLogger(__name__)

COMPARISONS = Path("data/compare")


def main(name: str) -> None:
    """Add the run, if it is not there."""
    # on standard output, which `flows.compare` passes on
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    settings.apply()
    from stages.tracking import comparison_run, store  # they import MLflow, which reads these

    folder = COMPARISONS / name
    if not (folder / "metrics.json").is_file():
        known = ", ".join(sorted(path.parent.name for path in COMPARISONS.glob("*/metrics.json")))
        sys.exit(f"there is no comparison {folder}; there is {known or 'none'}")
    try:
        with store.exclusive():
            added = comparison_run.sync(store.connect(Path.cwd()), name, folder)
    except store.OUTAGES as error:
        logger.warning(store.outage(error, f"stages.track_comparison {name}"))
    else:
        logger.info("MLflow: %s", f"added 'compare {name}'" if added else "nothing to add")


if __name__ == "__main__":
    process.run(main)
