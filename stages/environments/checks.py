"""Whether an environment can be replayed: it answers the same messages alike, whatever else plays.

Run when the environment is made, and on a few starts before a policy is trained in it.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from stages.environments import scripts
from stages.environments.definition import Factory
from stages.environments.limits import EpisodeLimits
from stages.environments.replay import replay_episode, replay_together
from stages.own_modules import restored_settings
from stages.records.episodes import FAILED, Episode
from stages.seeding import derive_seed

logger = logging.getLogger(__name__)

NUM_ROWS = 4
"""Rows of a split that are checked."""
Play = tuple[Episode, Mapping[str, Any]]
"""An episode, and the row that it starts from."""


@restored_settings()
def check_replay(
    factory: Factory, rows: Sequence[Mapping[str, Any]], limits: EpisodeLimits, seed: int
) -> list[Play]:
    """Play an episode of each row, then all of them again at the same time, as training does.

    A ValueError where an episode differs then. The first row has one more start, with another
    seed, and a start with two episodes. The assistant writes canned replies, and the environment's
    own demonstration where it has one. A warning where each canned reply makes the environment
    fail. Returns the episodes.
    """
    first, second = factory(), factory()
    if first is second:
        raise ValueError(
            f"expected a new environment for each episode, found the same {type(first).__name__} "
            f"twice: episodes are played at the same time, so make the object in each call"
        )
    starts = [(row, ("environment", "check", str(row["id"]))) for row in rows]
    starts += [(row, (*names, "other")) for row, names in starts[:1]]
    plays, failures = list[Play](), list[str]()
    for row, names in starts:
        env_seed = derive_seed(seed, *names)
        canned = scripts.play_script(factory(), row, env_seed, limits)
        failures += [canned.error or ""] if canned.ending == FAILED else []
        plays.append((canned, row))
        if hasattr(factory(), "demonstrate"):
            plays.append((play_demonstration(factory, row, env_seed, limits), row))
    together, seconds = [*plays, *plays[:1]], limits.timeout_seconds
    differences = replay_together(factory, together, timeout_seconds=seconds)
    for (episode, row), difference in zip(together, differences, strict=True):
        if difference is None:
            continue
        alone = replay_episode(factory(), episode, row, timeout_seconds=seconds)
        if alone is not None:
            raise ValueError(
                f"the environment is not deterministic: started twice with row '{row['id']}' "
                f"and seed {episode.env_seed}, the second time differs: {alone}. Draw from a "
                f"generator of the episode's own, such as `self.random = random.Random(seed)` "
                f"in `start`, call a library that draws from the global generators by an "
                f"`isolated_calls.IsolatedCalls(seed)`, and keep nothing between episodes."
            )
        raise ValueError(
            f"episodes of the environment share what each must have for itself: row '{row['id']}' "
            f"with seed {episode.env_seed}, played while others are, as in training, differs from "
            f"the same episode alone: {difference}. Let `start` keep what an episode needs in "
            f"attributes of `self`: none of the class, of a module, or of an object that several "
            f"episodes have."
        )
    if rows and len(failures) == len(starts):
        logger.warning(
            "the environment fails whenever the assistant writes canned replies (%s): if it does "
            "so with what a policy writes, training stops. Answer a wrong message, or reward it 0",
            failures[0],
        )
    return plays


@restored_settings()
def play_demonstration(
    factory: Factory, row: Mapping[str, Any], env_seed: int, limits: EpisodeLimits
) -> Episode:
    """Episode of the environment's own demonstration; a ValueError where the environment fails."""
    script = scripts.demonstrate(factory(), row, env_seed, seconds=limits.timeout_seconds)
    episode = scripts.play_script(factory(), row, env_seed, limits, script)
    if episode.ending == FAILED:
        raise ValueError(
            f"the demonstration of row '{row['id']}' failed: {episode.error}: correct the "
            f"environment, or its `demonstrate`"
        )
    return episode
