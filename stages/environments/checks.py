"""Whether an environment can be replayed: it answers the same messages alike, twice.

Run when the environment is made, and on a few starts before a policy is trained in it.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from stages.environments import scripts
from stages.environments.definition import EnvironmentPreset, Factory
from stages.environments.replay import replay_episode
from stages.records.episodes import FAILED, Episode
from stages.seeding import derive_seed

logger = logging.getLogger(__name__)

NUM_ROWS = 4
"""Rows of a split that are checked."""


def check_replay(
    factory: Factory, rows: Sequence[Mapping[str, Any]], preset: EnvironmentPreset, seed: int
) -> None:
    """Play an episode of each row, then replay it; a ValueError where the two differ.

    The assistant writes canned replies, and the environment's own demonstration where it has one.
    A warning where each canned reply makes the environment fail.
    """
    failures: list[str] = []
    for row in rows:
        env_seed = derive_seed(seed, "environment", "check", str(row["id"]))
        plays = [scripts.play_script(factory(), row, env_seed, preset)]
        failures += [episode.error or "" for episode in plays if episode.ending == FAILED]
        if hasattr(factory(), "demonstrate"):
            plays.append(play_demonstration(factory, row, env_seed, preset))
        for episode in plays:
            difference = replay_episode(
                factory(), episode, row, timeout_seconds=preset.timeout_seconds
            )
            if difference is not None:
                raise ValueError(
                    f"the environment is not deterministic: started twice with row '{row['id']}' "
                    f"and seed {env_seed}, the second time differs: {difference}. Draw from a "
                    f"generator of the episode's own, such as `self.random = random.Random(seed)` "
                    f"in `start`, call a library that draws from the global generators by an "
                    f"`isolated_calls.IsolatedCalls(seed)`, and keep nothing between episodes."
                )
    if rows and len(failures) == len(rows):
        logger.warning(
            "the environment fails whenever the assistant writes canned replies (%s): if it does "
            "so with what a policy writes, training stops. Answer a wrong message, or reward it 0",
            failures[0],
        )


def play_demonstration(
    factory: Factory, row: Mapping[str, Any], env_seed: int, preset: EnvironmentPreset
) -> Episode:
    """Episode of the environment's own demonstration; a ValueError where the environment fails."""
    limit = preset.timeout_seconds
    script = scripts.demonstrate(factory(), row, env_seed, seconds=limit)
    episode = scripts.play_script(factory(), row, env_seed, preset, script)
    if episode.ending == FAILED:
        raise ValueError(
            f"the demonstration of row '{row['id']}' failed: {episode.error}: correct the "
            f"environment, or its `demonstrate`"
        )
    return episode
