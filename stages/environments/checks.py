"""Check that an environment is replayable: equal messages get equal answers, beside any episodes.

It runs when the environment is made, and on a few starts before a policy is trained in it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.environments import scripts
from stages.environments.definition import Factory
from stages.environments.limits import EpisodeLimits
from stages.environments.replay import replay_together
from stages.own_modules import restored_settings
from stages.records.episodes import FAILED, Episode
from stages.seeding import derive_seed

NUM_ROWS = 4
"""Number of rows of a split that are checked."""
Play = tuple[Episode, Mapping[str, Any]]
"""Episode, and the row that it starts from."""


@restored_settings()
def check_replay(
    factory: Factory, rows: Sequence[Mapping[str, Any]], limits: EpisodeLimits, seed: int
) -> list[Play]:
    """Play an episode of each row, then all of them again at the same time, as training does.

    A ValueError if an episode then differs. The first row is also started with another seed, and
    its first episode is replayed twice. The assistant's messages are canned replies and, if the
    environment has one, its demonstration. Returns the episodes.
    """
    first, second = factory(), factory()
    if first is second:
        raise ValueError(
            f"expected a new environment for each episode, found the same {type(first).__name__} "
            f"twice: episodes are played at the same time, so make the object in each call"
        )
    starts = [(row, ("environment", "check", str(row["id"]))) for row in rows]
    starts += [(row, (*names, "other")) for row, names in starts[:1]]
    plays = list[Play]()
    for row, names in starts:
        env_seed = derive_seed(seed, *names)
        plays.append((scripts.play_script(factory(), row, env_seed, limits), row))
        if hasattr(factory(), "demonstrate"):
            plays.append((play_demonstration(factory, row, env_seed, limits), row))
    together, seconds = [*plays, *plays[:1]], limits.timeout_seconds
    differences = replay_together(factory, together, timeout_seconds=seconds)
    for (episode, row), difference in zip(together, differences, strict=True):
        if difference is None:
            continue
        raise ValueError(
            f"the environment answers differently if an episode is played again beside others, "
            f"as in training: row '{row['id']}' with seed {episode.env_seed}, {difference}. Let "
            f"`start` keep what an episode needs in attributes of `self`, none of the class or of "
            f"a module, draw from a generator of the episode's own, such as `self.random = "
            f"random.Random(seed)`, and call a library that draws from the global generators by an "
            f"`isolated_calls.IsolatedCalls(seed)`."
        )
    return plays


@restored_settings()
def play_demonstration(
    factory: Factory, row: Mapping[str, Any], env_seed: int, limits: EpisodeLimits
) -> Episode:
    """Episode of the environment's demonstration; a ValueError if the environment fails."""
    script = scripts.demonstrate(factory(), row, env_seed, seconds=limits.timeout_seconds)
    episode = scripts.play_script(factory(), row, env_seed, limits, script)
    if episode.ending == FAILED:
        raise ValueError(
            f"the demonstration of row '{row['id']}' failed: {episode.error}: correct the "
            f"environment, or its `demonstrate`"
        )
    return episode
