"""The checkout that a stage works for, where it may run in a temporary copy of it.

`dvc exp run --temp` and `--queue` run in copies that DVC deletes afterwards. Whatever outlives an
experiment, or is shared by those that run at the same time, belongs into the checkout: run records,
the MLflow store, locks of GPUs.
"""

import os
from collections.abc import Iterator
from pathlib import Path

DATA = Path("data")


def locate_checkout() -> Path:
    """The root of the checkout: DVC tells its commands by DVC_ROOT; without it here."""
    return Path(os.environ.get("DVC_ROOT") or Path.cwd())


def find_outside_folders() -> Iterator[str]:
    """What is wrong with folders of outputs that are links to places outside of the checkout.

    DVC keeps no output there, and would say so only after a stage's work.
    """
    root = Path.cwd().resolve()
    for path in [DATA, *DATA.glob("*"), *DATA.glob("*/*"), *DATA.glob("*/*/*")]:
        is_input = path.parts[:2] == (*DATA.parts, "raw")
        if path.is_symlink() and path.is_dir() and not is_input:
            target = path.resolve()
            if not target.is_relative_to(root):
                yield (
                    f"{path} is a link to {target}, and DVC keeps no output outside of the "
                    f"checkout: move its content back, and on that disk put the whole checkout, or "
                    f"DVC's cache: `dvc cache dir <folder>`, `dvc config cache.type symlink`"
                )
