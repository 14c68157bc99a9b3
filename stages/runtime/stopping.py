"""An end in time: SIGTERM (a preempted agent, a batch queue's warning, the end of dvc), or Ctrl-C.

What a later start goes on from is written first, within `SECONDS`; then the kernel ends the process
in any case.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SECONDS = 10.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)
STATUS = 128 + signal.SIGTERM
"""The exit status of a process that was asked to end."""


class Stopped(SystemExit):
    """This process was asked to end; see `listening` and `between`."""


@dataclass
class _Asked:
    wanted: bool = False
    anywhere: Callable[[], bool] = lambda: True
    """Whether `Stopped` may be raised where the work is."""


_asked = _Asked()


@contextmanager
def listening() -> Iterator[None]:
    """Meanwhile a signal raises `Stopped`, once; in processes that are forked meanwhile, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """Leave it to the process that started this one to end it."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    if _asked.wanted:
        return
    _asked.wanted = True
    signal.setitimer(signal.ITIMER_REAL, SECONDS)  # SIGALRM, unhandled, ends the process
    if _asked.anywhere():
        raise Stopped(STATUS)


def wanted() -> bool:
    """Whether this process was asked to end."""
    return _asked.wanted


@contextmanager
def between(anywhere: Callable[[], bool]) -> Iterator[None]:
    """Meanwhile `Stopped` is raised where `anywhere` says so; elsewhere `wanted` is to be asked."""
    before, _asked.anywhere = _asked.anywhere, anywhere
    try:
        yield
    finally:
        _asked.anywhere = before
