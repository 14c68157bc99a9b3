"""Check of packages, all tables and parameters before the first stage works.

    python -m stages.runtime.preflight

is the first line of each command in dvc.yaml, before the line with the words of a row. DVC quotes
the values of a row, but neither its name nor its keys, and `dvc repro -s <stage>`, which flows
call, starts a stage without `plan`: only an earlier line can refuse a bad name before a shell
parses it. It takes 0.1 s once the check has passed.

The check imports every entry point (a second) and is not part of the runtime, so it is a
subprocess, one for all stages that start together. Its success is remembered until a file changes,
or a name, size or time in data/raw.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from stages.runtime import checkout, process, versions
from stages.runtime.outputs import PIPE

CODE = Path("stages")
PASSED = PIPE / "preflight"
RAW = Path("data/raw")


def check() -> None:
    """Raise a ValueError if the plan has errors, with all of them; skipped without `stages.plan`.

    Before that, raise one if packages are not of the pinned versions, with which the check of the
    plan might not even import; then one if outputs are where DVC cannot keep them, since a folder
    may have become a link after the plan had passed.
    """
    versions.check()
    if problems := list(checkout.find_outside_folders()):
        raise ValueError("\n".join(problems))
    passed = PASSED / digest_plan_files()
    if not (CODE / "plan.py").is_file() or passed.exists():
        return
    PASSED.mkdir(parents=True, exist_ok=True)
    with FileLock(PASSED / "lock"):
        if passed.exists():
            return
        command = [sys.executable, "-m", "stages.plan", "--check"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode < 0:
            raise ValueError(
                f"if memory ran out, run fewer stages at a time: the check of the plan ended "
                f"without a word, exited with {result.returncode}"
            )
        if result.returncode != 0:
            raise ValueError(result.stderr.strip())
        if digest_plan_files() == passed.name:
            for stale in [path for path in PASSED.iterdir() if path.name != "lock"]:
                stale.unlink()
            passed.touch()


def digest_plan_files() -> str:
    """SHA-256 over params.yaml, dvc.yaml, and every Python and YAML file of the stages.

    Also over names, sizes and times in data/raw, since the check reads the files that rows name.
    """
    content = hashlib.sha256()
    files = sorted([*CODE.rglob("*.yaml"), *CODE.rglob("*.py")])
    for path in [Path("params.yaml"), Path("dvc.yaml"), *files]:
        content.update(str(path).encode() + b"\0")
        if path.is_file():
            content.update(hashlib.sha256(path.read_bytes()).digest())
    for path in sorted(path for path in RAW.rglob("*") if path.is_file()):
        state = path.stat()
        content.update(f"{path}\0{state.st_size} {state.st_mtime_ns}\0".encode())
    return content.hexdigest()


if __name__ == "__main__":
    process.run(check)
