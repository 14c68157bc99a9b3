"""End of an environment that holds something, such as a file or a process: its method `close`."""

import logging
from typing import Any

from stages.environments.time_limit import TimeLimitError, call_within

logger = logging.getLogger(__name__)


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
    except Exception as error:  # noqa: BLE001 - an environment may raise anything
        logger.error("environment %s: close raised %s: %s", name, type(error).__name__, error)
