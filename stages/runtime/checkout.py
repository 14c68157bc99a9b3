"""Location of the checkout for which a stage works, perhaps in a temporary copy.

`dvc exp run --temp` and `--queue` run in copies that DVC deletes afterwards. Files that outlive an
experiment, or are shared by concurrent ones, belong into the checkout: run records, the MLflow
store, locks of GPUs.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

DATA, DVC_YAML = Path("data"), Path("dvc.yaml")
STUDIES = "studies"
"""Folder of the outputs of studies."""


def locate_checkout() -> Path:
    """Root of the checkout: DVC_ROOT, which DVC sets for its commands, or the working directory."""
    return Path(os.environ.get("DVC_ROOT") or Path.cwd())


def find_outside_folders() -> Iterator[str]:
    """Errors: folders of outputs that are links to places outside of the checkout.

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
    """Names of folders in `outs` of dvc.yaml; others, as run records and models, may be links."""
    text = DVC_YAML.read_text(encoding="utf-8", errors="replace") if DVC_YAML.is_file() else ""
    outs = [line for line in text.splitlines() if line.lstrip().startswith("outs:")]
    folder = re.compile(rf"{DATA}/([\w-]+)(?![\w.-])")  # not data/raw.json
    return {STUDIES, *(name for line in outs for name in folder.findall(line))}
