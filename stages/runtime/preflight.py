"""All parameters, and dvc.yaml, are checked before the first stage works.

The checks import every entry point (seconds) and are no part of the runtime, so each is a
subprocess; their success is remembered under `.pipe/` for as long as the files and the code stay
what they were.
"""

import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path

from stages.runtime.identity import PIPE

FILES = tuple(map(Path, ("params.yaml", "presets.yaml", "recipes.yaml", "dvc.yaml")))
CODE = Path("stages")
FLOWS = Path("flows")
CHECKS = {
    CODE / "check_params.py": ["stages.check_params"],
    FLOWS / "gather.py": ["flows.gather", "check"],
}
"""Where a check is, and the module and arguments that run it."""


def check() -> None:
    """Raise one ValueError with everything that is wrong in params.yaml, or then in dvc.yaml.

    Leaves out a check that is not in this folder. Stages that start together check once.
    """
    checks = [command for path, command in CHECKS.items() if path.is_file()]
    if not checks:
        return
    passed = PIPE / "preflight" / digest()
    if passed.exists():
        return
    passed.parent.mkdir(parents=True, exist_ok=True)
    with (passed.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if passed.exists():
            return
        for command in checks:
            result = subprocess.run(
                [sys.executable, "-m", *command], capture_output=True, text=True, check=False
            )
            if result.returncode != 0:
                raise ValueError(result.stderr.strip())
        for stale in passed.parent.iterdir():
            if stale.name != "lock":
                stale.unlink()
        passed.touch()


def digest() -> str:
    """A hash of these files and of every Python file of the stages and the flows."""
    content = hashlib.sha256()
    for path in [*FILES, *sorted(CODE.rglob("*.py")), *sorted(FLOWS.rglob("*.py"))]:
        content.update(str(path).encode() + b"\0")
        if path.exists():
            content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()
