"""Refuse to run code that was edited after DVC had read what it consists of.

DVC knows a stage's code by the file that trace_code wrote when this `dvc repro` began. A stage that
starts an hour later imports what the files say then: were they edited in between, its result would
be kept, and restored one day, as that of the older code.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

TRACED = ("data/code/", "data/own/")


def check(dependencies: Iterable[str]) -> None:
    """Compare the source files with the digests that the stage depends on.

    Args:
        dependencies: paths of the stage's dependencies, relative to the repository.

    Raises:
        ValueError: a source file is not what DVC takes it for.
    """
    for traced in sorted(path for path in dependencies if path.startswith(TRACED)):
        for file, expected in json.loads(Path(traced).read_text(encoding="utf-8")).items():
            path = Path(file)
            found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
            if found != expected:
                raise ValueError(
                    f"{file} was edited after {traced} was written, by which DVC knows this "
                    f"stage's code. Run `dvc repro` again; before `dvc repro -s <stage>`, run "
                    f"`dvc repro -s trace_code`."
                )
