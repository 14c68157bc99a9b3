"""The whole params.yaml is checked before the first stage works, not stage by stage.

The check imports every entry point (seconds), so it is a subprocess, and its success is
remembered under `.pipe/` for as long as params.yaml and the code stay what they were.
"""

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

from stages.runtime.identity import PIPE

PARAMS = Path("params.yaml")
CODE = Path("stages")
CHECK = CODE / "check_params.py"


def check() -> None:
    """Raise one ValueError with everything that is wrong in params.yaml.

    Does nothing in a folder without the check itself. Stages that start together check once.
    """
    if not CHECK.is_file():
        return
    passed = PIPE / "preflight" / digest()
    if passed.exists():
        return
    passed.parent.mkdir(parents=True, exist_ok=True)
    with (passed.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if passed.exists():
            return
        result = subprocess.run(
            [sys.executable, "-m", "stages.check_params"],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise ValueError(result.stderr.strip())
        for stale in passed.parent.iterdir():
            if stale.name != "lock":
                stale.unlink()
        passed.touch()


def digest() -> str:
    """A hash of params.yaml and of every Python file of the stages."""
    content = hashlib.sha256()
    for path in [PARAMS, *sorted(CODE.rglob("*.py"))]:
        content.update(str(path).encode() + b"\0")
        if path.exists():
            content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()
