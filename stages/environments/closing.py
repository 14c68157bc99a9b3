"""End of an episode: the optional methods `finish` and `close` of an environment.

finish() -> reward    of an episode that a limit ended, not the environment
close()               releases what the environment holds, such as a file or a process
"""

import logging
from typing import Any

from stages.environments.environment import check_reward
from stages.environments.time_limit import FAILURES, TimeLimitError, call_within

logger = logging.getLogger(__name__)


def finish_environment(environment: Any) -> float | None:
    """Reward of an environment whose episode a limit ended; None: it has no `finish`."""
    finish = getattr(environment, "finish", None)
    return check_reward(finish()) if callable(finish) else None


def close_environment(environment: Any, seconds: float) -> None:
    """Call `close` of an environment that has it; once, after its episode.

    An error in `close` changes no reward: it is logged, as is a call that takes longer than
    `seconds`.
    """
    close = getattr(environment, "close", None)
    if not callable(close):
        return
    name = type(environment).__name__
    try:
        call_within(seconds, close)
    except TimeLimitError:
        logger.error("environment %s: close did not return within %g s", name, seconds)
    except FAILURES as error:
        logger.error("environment %s: close raised %s: %s", name, type(error).__name__, error)
