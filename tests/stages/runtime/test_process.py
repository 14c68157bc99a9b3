"""How a stage's process ends, by itself or with its dvc."""

import ctypes
import os
import pty
import signal
import subprocess
import sys
import time

import psutil
import pytest

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


@pytest.mark.parametrize(
    ("end", "status", "shown"),
    [
        ("sys.exit('why')", 1, "why\n"),
        ("import argparse; argparse.ArgumentParser('it').error('why')", 2, "it: error: why\n"),
        ("raise process.Stopped(process.STATUS)", 143, ""),
    ],
)
def test_an_exit_ends_it_with_its_status_and_nothing_is_taken_apart(end, status, shown) -> None:
    result = ended(end)
    assert result.returncode == status
    assert result.stdout.splitlines() == ["one two", "thread", "handler"]
    assert result.stderr.endswith(shown)
    assert "Traceback" not in result.stderr


def test_an_error_ends_it_as_ever() -> None:
    result = ended("raise ValueError('why')")
    assert result.returncode == 1
    assert "ValueError: why" in result.stderr
    assert "handler" in result.stdout


def test_a_sentence_for_the_user_is_shown_without_a_traceback() -> None:
    result = ended(
        "import pathlib, stages.config; stages.config.read_yaml(pathlib.Path('none.yaml'))"
    )
    assert result.returncode == 1
    assert result.stderr.startswith("Error: none.yaml: expected YAML in UTF-8")
    assert "Traceback" not in result.stderr
    assert result.stdout.splitlines()[-1] == "handler"  # and nothing is taken apart


HOSTILE = "\x1b[2J\x1b]0;title\x07\r\x9b2J\u202e"
QUOTES = f"""
import logging, warnings
logging.basicConfig(level=logging.INFO, format="%(message)s")
text = {HOSTILE!r}
logging.info("a log of %s, an umlaut: \u00e4", text)
warnings.warn(text)
error = ValueError("an error of " + text)
error.add_note("a note of " + text)
"""


@pytest.mark.parametrize("end", ["raise error", "sys.exit(f'an exit with {text}')"])
def test_what_a_model_wrote_is_shown_by_a_terminal_and_never_obeyed(end) -> None:
    program = QUOTES.replace("\n", "\n    ") + end
    result = ended(program)
    assert result.returncode == 1
    assert [item for item in result.stderr if not item.isprintable() and item != "\n"] == []
    assert r"\x1b[2J\x1b]0;title\x07\r\x9b2J\u202e" in result.stderr
    assert "an umlaut: \u00e4" in result.stderr
    assert result.stderr.count(r"\x1b[2J") >= (4 if "raise" in end else 3)


LOST = """
import logging, os, signal, sys
from stages.runtime import process
def main():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO)
    print("begun", flush=True)
    sys.stdin.read()
    for _ in range(3):
        print("to nobody"), logging.info("to nobody")
        sys.stderr.buffer.write(b"to nobody"), sys.stderr.flush()
    os.write(int(sys.argv[1]), b"worked")
process.run(lambda _: main())
"""


@pytest.mark.parametrize("open_output", [pty.openpty, os.pipe], ids=["terminal", "pipe"])
def test_output_that_nobody_can_read_any_more_is_no_error(open_output) -> None:
    reader, output = open_output()
    result, worked = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", LOST, str(worked)],
        stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=[worked],
    )  # fmt: skip
    os.close(output), os.close(worked)
    assert os.read(reader, 100).startswith(b"begun")
    os.close(reader)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0
    assert os.read(result, 100) == b"worked"
    os.close(result)


@pytest.mark.parametrize("ignored", [False, True], ids=["in a terminal", "under nohup"])
def test_the_end_of_the_terminal_asks_it_to_end_unless_that_is_ignored(ignored) -> None:
    program = (
        "import os, signal, time\n"
        "from stages.runtime import process\n"
        # These tests may run under nohup themselves.
        f"signal.signal(signal.SIGHUP, signal.{'SIG_IGN' if ignored else 'SIG_DFL'})\n"
        "with process.listening():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    time.sleep(0.1)\n"
        "os._exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == (7 if ignored else 128 + signal.SIGTERM)


@pytest.mark.parametrize(
    "command",
    ["python work.py train@sft", "python work.py train@sft && true"],
    ids=["exec", "fork"],
)
def test_a_stage_dies_when_its_dvc_is_killed(toy_repo, command):
    """Both where the shell replaces itself by the command and where it stays in between."""
    text = (toy_repo.path / "dvc.yaml").read_text()
    (toy_repo.path / "dvc.yaml").write_text(text.replace("python work.py train@${key}", command))
    dvc = toy_repo.start("dvc", "repro", "train@sft", TOY_STOP="hang")
    stopped = toy_repo.path / "stopped"
    while not (stopped.exists() and stopped.read_text()):
        assert dvc.poll() is None
        time.sleep(0.05)
    stage = psutil.Process(int(stopped.read_text()))
    os.kill(dvc.pid, signal.SIGKILL)
    dvc.wait()
    gone, alive = psutil.wait_procs([stage], timeout=50)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    assert gone or alive


FORKED = """
import multiprocessing, os, time
from stages.runtime import process
parent = os.getpid()
def late():
    while os.getppid() == parent:
        time.sleep(0.01)
    process.die_with_parent()
    print("works for nobody", flush=True)
multiprocessing.get_context("fork").Process(target=late).start()
os._exit(0)
"""


def test_a_seed_that_begins_when_its_parent_has_ended_ends_too():
    completed = subprocess.run(
        [sys.executable, "-c", FORKED], check=True, capture_output=True, text=True, timeout=60
    )
    assert completed.stdout == ""


def test_a_stage_started_by_hand_lives_on_without_its_parent(toy_repo):
    """Only dvc's end means that the run is over; a closed shell does not."""
    output = toy_repo.run(
        "sh", "-c", "(python work.py train@sft >/dev/null 2>&1 &) ; sleep 0.1; echo gone"
    )
    assert output == "gone\n"
    for _ in range(2400):
        if list(toy_repo.path.glob("data/runs/train/sft/*/run.json")):
            return
        time.sleep(0.05)
    raise AssertionError("the stage ended with its shell")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc alone has mallopt")
def test_memory_that_was_freed_is_used_again_without_asking_the_kernel() -> None:
    program = """
import resource
import numpy
from stages.runtime import process
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def activations():
    tensors = [numpy.ones(2**20) for _ in range(8)]  # 8 MiB each
def main():
    activations()
    before = faults()
    for _ in range(10):
        activations()
    print(faults() - before)
{end}
"""
    result = [
        int(subprocess.check_output([sys.executable, "-c", program.format(end=end)], text=True))
        for end in ("process.run(main)", "main()")
    ]
    assert result[0] < 1_000 < result[1]  # a page is 4 KiB: 16,384 of them, ten times


FREED = """
import ctypes, psutil
from stages.runtime import process
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def main():
    blocks = [libc.malloc(2**18) for _ in range(800)]
    for block in blocks:
        ctypes.memset(block, 1, 2**18)
    for block in blocks[:-1]:  # the last one stands at the end of the heap
        libc.free(ctypes.c_void_p(block))
    before = psutil.Process().memory_info().rss
    process.return_free_memory()
    print(before - psutil.Process().memory_info().rss)
process.run(main)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_memory_that_was_freed_below_memory_in_use_is_returned() -> None:
    result = subprocess.run(
        [sys.executable, "-c", FREED], check=True, capture_output=True, text=True
    )
    assert int(result.stdout) > 0.9 * 800 * 2**18
