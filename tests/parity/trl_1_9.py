"""TRL 1.9.2 in a process of its own: the last with the trainers of PPO and process rewards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRL = "1.9.2"
FOLDER = os.environ.get("TRL_1_9", "")
ROOT = Path(__file__).parents[2]
needs_trl_1_9 = pytest.mark.skipif(
    not FOLDER,
    reason="TRL_1_9 names no folder: pip install --no-deps --target FOLDER "
    "-r .ci/parity-trl-1.9-requirements.txt",
)


def run(module: str, *arguments: str) -> None:
    """The module with TRL 1.9.2 first on the path."""
    path = os.pathsep.join([FOLDER, str(ROOT / "tests"), str(ROOT)])
    subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=os.environ | {"PYTHONPATH": path, "DO_NOT_TRACK": "1"},
        check=True,
        timeout=300,
    )
