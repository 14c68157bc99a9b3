"""How a stage's process ends."""

import subprocess
import sys

PROGRAM = """
import atexit, sys, threading, time
from stages.runtime import process
atexit.register(lambda: print("handler"))
class Left:
    def __del__(self): print("taken apart")
left = Left()
def late():
    time.sleep(0.2)
    print("thread")
def main(*words):
    print(*words)
    threading.Thread(target=late).start()
    {end}
process.run(main)
"""


def ended(end: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.format(end=end), "one", "two"]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_threads_and_handlers_come_first_and_nothing_is_taken_apart() -> None:
    result = ended("print('said last', file=sys.stderr)")
    assert result.returncode == 0
    assert result.stdout.splitlines() == ["one two", "thread", "handler"]
    assert result.stderr == "said last\n"


def test_an_error_ends_it_as_ever() -> None:
    result = ended("raise ValueError('why')")
    assert result.returncode == 1
    assert "ValueError: why" in result.stderr
    assert "handler" in result.stdout
