"""Which mutations a run tries."""

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEED = "MUTATION_SEED"
"""Environment: another seed than the commit's hash; the same tries the same."""
SHARE = "MUTATION_SHARE"
"""Environment: one in how many is tried; 1: all."""


@pytest.fixture(scope="session")
def seed() -> str:
    """Prints itself: with it the same mutations are tried again."""
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    found = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    chosen = os.environ.get(SEED) or found or "no commit"
    print(f"{SEED}={chosen}")
    return chosen


@pytest.fixture(scope="session")
def chosen(seed: str) -> Callable[[Iterable[str], int], list[str]]:
    """Of names those that are tried, one in `share` of them, at least one."""

    def choose(names: Iterable[str], share: int) -> list[str]:
        def place(name: str) -> str:
            return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()

        ordered = sorted(names, key=place)
        found = ordered[: max(1, len(ordered) // int(os.environ.get(SHARE, share)))]
        print(f"{len(found)} of {len(ordered)}: {' '.join(found)}")
        return found

    return choose
