"""Time limit of a call of Python, such as a step of an environment that may hang."""

import signal
import threading
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TypeVar

from stages.own_modules import restored_settings

ValueT = TypeVar("ValueT")


class TimeLimitError(BaseException):
    """A call took too long. Not an `Exception`, so `except Exception` in the call lets it pass."""


FAILURES = (Exception, TimeLimitError, CancelledError)
"""Errors that a call of an environment may raise; a failed task group may cancel its caller."""


@restored_settings()
def call_within(seconds: float, function: Callable[[], ValueT]) -> ValueT:
    """Result of `function()`, or a TimeLimitError after `seconds`.

    In the main thread a signal interrupts whatever Python code runs, a busy loop and a wait for a
    socket or a process included. It does not interrupt a long call of C code that never looks for
    signals (a regular expression, a matrix product), nor code that catches BaseException and goes
    on. In another thread the call is abandoned after `seconds`, and goes on in the background.

    `sys.exit` in the call, as by argparse for a wrong command, is a RuntimeError. Changes of the
    process's settings are undone (`own_modules.restored_settings`).
    """
    if threading.current_thread() is not threading.main_thread():
        return call_in_thread(seconds, function)
    main, expired, over = threading.get_ident(), threading.Event(), threading.Event()

    def expire() -> None:
        expired.set()
        signal.pthread_kill(main, signal.SIGALRM)

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if not expired.is_set():  # the alarm of somebody else, who waits for it
            signal.signal(number, before)
            signal.raise_signal(number)
        elif not over.is_set():
            over.set()
            raise TimeLimitError

    # A thread rather than the process's one timer, which ends a process that was asked to stop.
    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        timer.start()
        try:
            return function()
        finally:
            over.set()  # nothing below may be interrupted
    finally:
        timer.cancel()
        with suppress(RuntimeError):  # `start` was interrupted: its thread will find it cancelled
            timer.join()  # it may be sending its signal, which by default ends the process
        signal.signal(signal.SIGALRM, before)


def call_in_thread(seconds: float | None, function: Callable[[], ValueT]) -> ValueT:
    """Result of `function()`, which runs in another thread; a TimeLimitError after `seconds`."""
    results: list[ValueT] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeLimitError
    return results[0]
