"""What trace_code knows of the source files that each stage reads.

Every stage depends on an output of trace_code. So the trace is brought up to date before anything
is planned or told: without that, an edit of one file would make every stage look stale.
"""

import json
import subprocess
import sys
from pathlib import Path

from flows.process import child_environment

STAGE = "trace_code"
IMPORTS = Path("data/trace_code/imports")


def refresh(root: Path) -> None:
    """Run trace_code, if a source file changed; it takes a second or two.

    Raises:
        ValueError: DVC could not run it.
    """
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "-q", "-s", STAGE]
    environment = child_environment(Path(sys.executable))
    result = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise ValueError(f"`dvc repro -s {STAGE}` failed in {root}:\n{result.stderr.strip()}")


def readers(root: Path, file: str) -> list[str]:
    """The traced files, relative to `root`, of every entry point that reads `file`."""
    traced = (root / IMPORTS).rglob("*.json")
    return sorted(
        path.relative_to(root).as_posix()
        for path in traced
        if file in json.loads(path.read_text(encoding="utf-8"))
    )
