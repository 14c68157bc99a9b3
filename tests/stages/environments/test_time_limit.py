import argparse
import signal
import threading
import time

import pytest

from stages.environments.time_limit import TimeLimitError, call_within
from stages.own_modules import describe_error
from stages.runtime.process import Stopped


def spin():
    while True:
        pass


def test_a_busy_loop_and_a_wait_are_interrupted_and_the_handler_is_put_back():
    before = signal.getsignal(signal.SIGALRM)
    for call in (spin, lambda: time.sleep(9)):
        began = time.monotonic()
        with pytest.raises(TimeLimitError):
            call_within(0.1, call)
        assert time.monotonic() - began < 5
        assert signal.getsignal(signal.SIGALRM) is before
    assert call_within(9.0, lambda: 5) == 5
    with pytest.raises(KeyError):
        call_within(9.0, lambda: {}["a"])
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())


def test_what_stops_the_process_goes_through():
    def leave():
        raise Stopped

    alarms = []
    before = signal.signal(signal.SIGALRM, lambda *_: alarms.append(1))
    try:
        call_within(9.0, lambda: signal.raise_signal(signal.SIGALRM))
        assert alarms == [1], "the alarm of somebody else"
        with pytest.raises(Stopped):
            call_within(9.0, leave)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_command_that_argparse_refuses_fails_and_does_not_end_the_run():
    parser = argparse.ArgumentParser()
    with pytest.raises(RuntimeError, match=r"sys\.exit\(2\)") as caught:
        call_within(9.0, lambda: parser.parse_args(["--buy", "hat"]))
    assert "(test_time_limit.py, line " in describe_error(caught.value)


def test_a_request_to_end_that_comes_before_the_timer_runs_goes_through(monkeypatch):
    """Not the error of joining a thread that was never started: it was taken for the call's own."""

    def leave(_):
        raise Stopped

    before = signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr(threading.Timer, "start", leave)
    with pytest.raises(Stopped):
        call_within(9.0, lambda: 5)
    assert signal.getsignal(signal.SIGALRM) is before


def test_in_another_thread_the_call_is_given_up():
    results = []

    def run():
        for call in (lambda: 5, lambda: time.sleep(1)):
            try:
                results.append(call_within(0.1, call))
            except TimeLimitError:
                results.append("late")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert results == [5, "late"]
