"""Calls of a package's code, with separate states of global random generators for each episode.

Many environments draw from `random` and numpy's global generator. Episodes are stepped in turn, so
each has its own states of both, which are set for a call, and replaced by the former ones after it.
"""

import asyncio
import contextlib
import inspect
import io
import random
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from stages.environments.time_limit import call_in_thread


class IsolatedCalls:
    """Caller of an episode's functions; coroutines run to their end, in a new event loop.

    If this thread already has a running loop, as in a notebook, that is in another thread. Printed
    text is dropped, so that it does not break the lines of progress.
    """

    def __init__(self, seed: int) -> None:
        numpy_state = np.random.RandomState(seed % 2**32).get_state()
        self._states = random.Random(seed).getstate(), numpy_state

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of `function`, awaited if it is a coroutine."""
        outer = random.getstate(), np.random.get_state()  # noqa: NPY002
        _set_states(*self._states)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                value = function(*args, **kwargs)
                return _run(value) if inspect.isawaitable(value) else value
        finally:
            self._states = random.getstate(), np.random.get_state()  # noqa: NPY002
            _set_states(*outer)


def _set_states(python: Any, numpy: Any) -> None:
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002


def _run(value: Awaitable[Any]) -> Any:
    async def wait() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:  # no running loop
        return asyncio.run(wait())
    return call_in_thread(None, lambda: asyncio.run(wait()))
