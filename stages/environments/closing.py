"""End of an episode: an environment's methods `finish` and `close`, which it need not have.

finish() -> reward    of an episode that a limit ends, and not the environment
close()               releases what the environment holds, such as a file or a process
"""

import logging
from typing import Any

from stages.environments.environment import check_reward
from stages.environments.time_limit import FAILURES, TimeLimitError, call_within

logger = logging.getLogger(__name__)


def finish_environment(environment: Any) -> float | None:
    """Reward that an environment pays as a limit ends its episode; None: it has no `finish`."""
    finish = getattr(environment, "finish", None)
    return check_reward(finish()) if callable(finish) else None


def close_environment(environment: Any, seconds: float) -> None:
    """Call `close` of an environment that has it; call this once, when its episode has ended.

    The episode is over, so what `close` raises changes no reward: it is logged as an error, and so
    is a call that takes longer than `seconds`.
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
