"""The checkout that a stage works for, where it may run in a temporary copy of it.

`dvc exp run --temp` and `--queue` run in copies that DVC deletes afterwards. Whatever outlives an
experiment, or is shared by those that run at the same time, belongs into the checkout: run records,
the MLflow store, locks of GPUs.
"""

import os
from pathlib import Path


def locate_checkout() -> Path:
    """The root of the checkout: DVC tells its commands by DVC_ROOT; without it here."""
    return Path(os.environ.get("DVC_ROOT") or Path.cwd())
