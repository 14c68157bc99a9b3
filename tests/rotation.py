"""What a run of the CI does of that which is too long to do whole: the commit chooses.

ROTATION_SEED=<commit> chooses as that commit did. How much is chosen:

    ROTATION_SHARE=3       one in three of the tests marked `rotating`; without it all
    MUTATION_SHARE=20      one in twenty of the mutations of tests/staleness
    RESUME_FAMILIES=4      families of stages of tests/resume/test_kills.py; `all`, or names
    RESUME_KILLS=3         kills of each family, and of agents in tests/flows/test_agents.py
"""

import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def seed() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    result = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return os.environ.get("ROTATION_SEED") or result or "no commit"


def part(names: Iterable[str], share: int) -> list[str]:
    """One in `share` of them, at least one if there is any."""
    key = seed()
    ordered = sorted(names, key=lambda name: hashlib.sha256(f"{key} {name}".encode()).hexdigest())
    return ordered[: max(1, len(ordered) // share)]
