"""Replay of episodes in a process with another hash seed, as in a later run.

In each process Python draws a new hash seed, on which `hash(text)` and the order of a set of texts
depend. So an environment may be deterministic within a process, and differ in the next.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

from stages.environments import definition
from stages.environments.checks import Play
from stages.environments.definition import EnvironmentFile
from stages.environments.replay import replay_episode
from stages.records.episodes import Episode

VARIABLE, SEEDS = "PYTHONHASHSEED", ("1", "2")
"""The variable that fixes it, and two values, at least one of which this process does not have."""


def check_hash_seed(file: EnvironmentFile, plays: Sequence[Play]) -> None:
    """Raise a ValueError if an episode differs in a process with another hash seed.

    This takes the time of importing the environment and of the episodes. Half of all sets of two
    texts have the same order in both, so it can miss a difference.
    """
    seed = SEEDS[os.environ.get(VARIABLE) == SEEDS[0]]
    path = os.pathsep.join(filter(None, sys.path))  # the same imports as in this process
    content = [file.model_dump(mode="json"), [[asdict(episode), row] for episode, row in plays]]
    result = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(content), env=os.environ | {VARIABLE: seed, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not result.stdout:  # the status may come from the environment's exit code
        raise RuntimeError(f"the replay with {VARIABLE}={seed} failed:\n{result.stderr}")
    difference = json.loads(result.stdout)
    if difference is not None:
        raise ValueError(
            f"the environment differs between processes: {difference}. Python draws the order "
            f"of a set of texts and `hash(text)` anew: sort the set, use a digest of hashlib."
        )


def main() -> None:
    """Print, as JSON, the first episode of standard input that differs; null: none does.

    Standard output has nothing else: all that the environment prints goes to standard error.
    """
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    content, plays = json.loads(sys.stdin.read())
    file = EnvironmentFile.model_validate(content)
    factory, seconds = definition.load_factory(file), file.preset.timeout_seconds
    text = None
    for episode, row in ((Episode(**fields), row) for fields, row in plays):
        difference = replay_episode(factory(), episode, row, timeout_seconds=seconds)
        if difference is not None:
            text = f"row '{row['id']}' with seed {episode.env_seed}, {difference}"
            break
    os.write(answer, json.dumps(text).encode())


if __name__ == "__main__":
    main()
