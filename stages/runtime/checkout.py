"""The checkout that a stage works for, where it may run in a temporary copy of it.

`dvc exp run --temp` and `--queue` run in copies that DVC deletes afterwards. Whatever outlives an
experiment, or is shared by those that run at the same time, belongs into the checkout: run records,
the MLflow store, locks of GPUs.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

DATA, DVC_YAML = Path("data"), Path("dvc.yaml")
STUDIES = "studies"
"""Folder of the outputs of studies."""


def locate_checkout() -> Path:
    """The root of the checkout: DVC tells its commands by DVC_ROOT; without it here."""
    return Path(os.environ.get("DVC_ROOT") or Path.cwd())


def find_outside_folders() -> Iterator[str]:
    """What is wrong with folders of outputs that are links to places outside of the checkout.

    DVC keeps no output there, and would say so only after a stage's work.
    """
    root = Path.cwd().resolve()
    folders = [DATA / name for name in sorted(_list_output_folders())]
    inside = [path for folder in folders for path in (*folder.glob("*"), *folder.glob("*/*"))]
    for path in [DATA, *folders, *inside]:
        if path.is_symlink() and path.is_dir():
            target = path.resolve()
            if not target.is_relative_to(root):
                yield (
                    f"{path} is a link to {target}, and DVC keeps no output outside of the "
                    f"checkout: move its content back, and on that disk put the whole checkout, or "
                    f"DVC's cache: `dvc cache dir <folder>`, `dvc config cache.type symlink`"
                )


def _list_output_folders() -> set[str]:
    """Names of folders in `outs` of dvc.yaml: run records and models of the user's may be links."""
    text = DVC_YAML.read_text(encoding="utf-8", errors="replace") if DVC_YAML.is_file() else ""
    outs = [line for line in text.splitlines() if line.lstrip().startswith("outs:")]
    folder = re.compile(rf"{DATA}/([\w-]+)(?![\w.-])")  # not data/raw.json
    return {STUDIES, *(name for line in outs for name in folder.findall(line))}
