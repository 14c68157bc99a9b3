"""Git: files as they are at a commit, and the marks of a merge conflict."""

import functools
import os
import re
import subprocess
from pathlib import Path

CONFLICT = re.compile(rb"^(?:<{7}|>{7}) (.+)$", re.MULTILINE)
"""Lines that git writes around the two sides of a merge conflict."""


@functools.cache  # many stages read the same file
def show_file(root: Path, revision: str, path: str) -> bytes | None:
    """Content of a file at a commit, its path relative to `root`; None if there is none.

    Raises:
        ValueError: git cannot read the repository.
    """
    try:
        result = subprocess.run(
            ["git", "show", f"{revision}:./{path}"],  # with `./` also below the repository's root
            cwd=root,
            env=os.environ | {"LC_ALL": "C"},
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise ValueError(f"commit {revision} cannot be read without git: install it") from None
    error = result.stderr.decode(errors="replace")
    if "dubious ownership" in error:
        raise ValueError(f"commit {revision} cannot be read: {error.strip()}")
    if "not a git repository" in error:
        raise ValueError(
            f"commit {revision} cannot be read, because {root} is not in a git repository: name "
            f"two dvc.lock files to compare"
        )
    return result.stdout if result.returncode == 0 else None


def describe_conflict(content: bytes) -> str | None:
    """What to do about a dvc.lock with the marks of a merge conflict; None: it has none."""
    sides = [side.decode(errors="replace") for side in CONFLICT.findall(content)]
    if not sides:
        return None
    return (
        f"it has a merge conflict between {' and '.join(dict.fromkeys(sides))}: take one side, "
        f"`git checkout --ours dvc.lock` or `git checkout --theirs dvc.lock`, then run "
        f"`dvc repro`, which restores from the cache what it has of the other"
    )
