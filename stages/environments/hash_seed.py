"""Replay in a process with another hash seed, as a later run has one.

Python draws anew for each process what the order of a set of texts and `hash(text)` depend on. So
an environment may answer alike twice in a process, and otherwise in the next.
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
"""The variable that fixes it, and values, of which a process has one at most."""


def check_hash_seed(file: EnvironmentFile, plays: Sequence[Play]) -> None:
    """A ValueError where an episode differs in a process with another hash seed.

    This takes as long as the import of the environment, and the episodes. A set of two texts has
    the same order there in every other case.
    """
    seed = SEEDS[os.environ.get(VARIABLE) == SEEDS[0]]
    path = os.pathsep.join(filter(None, sys.path))  # it imports what this process does
    content = [file.model_dump(mode="json"), [[asdict(episode), row] for episode, row in plays]]
    result = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps(content), env=os.environ | {VARIABLE: seed, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not result.stdout:  # the status may be of what the environment does at exit
        raise RuntimeError(f"the replay with {VARIABLE}={seed} failed:\n{result.stderr}")
    difference = json.loads(result.stdout)
    if difference is not None:
        raise ValueError(
            f"the environment is another one in each process: {difference}. Python draws the order "
            f"of a set of texts and `hash(text)` anew: sort the set, take a digest of hashlib."
        )


def main() -> None:
    """Print, as JSON, which episode of standard input differs first; null: none does.

    Nothing else is printed there: what the environment prints, at exit too, goes to the errors.
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
