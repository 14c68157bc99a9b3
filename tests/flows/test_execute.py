"""The outcome of one stage, on a real DVC repository."""

import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flows.execute import (
    Limits,
    Outcome,
    OutputWatch,
    Result,
    Trouble,
    classify,
    last_words,
    run_stage,
)
from flows.plan import make_plan
from flows.process import StoppedError

SetParams = Callable[..., None]


def run(root: Path, name: str, lines: list[str] | None = None, **limits: float) -> Result:
    seen = lines if lines is not None else []
    return run_stage(
        name,
        root,
        on_line=seen.append,
        cancel=threading.Event(),
        limits=Limits(pause_seconds=0.1, **limits),
    )


def test_executed_then_skipped_then_restored(toy_repository: Path, set_params: SetParams) -> None:
    lines: list[str] = []
    assert run(toy_repository, "prepare", lines).outcome is Outcome.EXECUTED
    assert "working on data/prepare" in lines
    assert run(toy_repository, "prepare").outcome is Outcome.SKIPPED
    # outputs lost, lock entry lost, then both: each time the cache has them
    shutil.rmtree(toy_repository / "data/prepare")
    assert run(toy_repository, "prepare").outcome is Outcome.RESTORED
    (toy_repository / "dvc.lock").unlink()
    assert run(toy_repository, "prepare").outcome is Outcome.RESTORED
    # a parameter changed, and changed back
    assert run(toy_repository, "side@left").outcome is Outcome.EXECUTED
    set_params(left={"mode": "other"})
    assert run(toy_repository, "side@left").outcome is Outcome.EXECUTED
    set_params(left={"mode": "work"})
    assert run(toy_repository, "side@left").outcome is Outcome.RESTORED


def test_what_dvc_was_killed_while_writing_costs_nothing(toy_repository: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words],
                       cwd=toy_repository, check=True)  # fmt: skip

    run(toy_repository, "prepare")
    git("init", "-q")
    git("add", "dvc.lock")
    git("commit", "-qm", "prepare")
    committed = (toy_repository / "dvc.lock").read_text()
    run(toy_repository, "side@left")
    whole = (toy_repository / "dvc.lock").read_text()
    # between two lines, which DVC accepts, and within a word, which it does not
    torn = whole.rindex("md5:") + 2
    for cut in (whole.rindex("outs:") - 1, torn):
        (toy_repository / "dvc.lock").write_text(whole[:cut])
        (toy_repository / ".dvc/tmp/rwlock").write_text('{"read": {')
        assert run(toy_repository, "side@left").outcome is Outcome.RESTORED
        assert (toy_repository / "dvc.lock").read_text() == whole
    (toy_repository / "dvc.lock").write_text(whole[:torn])
    assert not make_plan(toy_repository, ["prepare"])["prepare"].stale
    assert (toy_repository / "dvc.lock").read_text() == committed


def test_a_kill_that_tears_dvc_lock_is_followed_by_an_attempt_that_ends(
    toy_repository: Path, set_params: SetParams
) -> None:
    run(toy_repository, "prepare")
    work = toy_repository / "work.py"
    tear = '    pathlib.Path("dvc.lock").write_text("stages:\\n  prepare")\n    os.kill('
    work.write_text(work.read_text().replace("    os.kill(", tear))
    run(toy_repository, "prepare")
    set_params(left={"mode": "killed_once"})
    result = run(toy_repository, "side@left")
    assert (result.outcome, result.attempts) == (Outcome.EXECUTED, 3), result.reason


def test_an_error_in_the_stage_fails_at_once_with_its_message(
    toy_repository: Path, set_params: SetParams, started: Callable[[], list[str]]
) -> None:
    run(toy_repository, "prepare")
    set_params(left={"mode": "value_error"})
    result = run(toy_repository, "side@left")
    assert result.outcome is Outcome.FAILED
    assert result.attempts == 1
    assert result.reason == "failed: ValueError: expected a number, found a word"
    assert started() == ["prepare", "left"]


def test_a_stage_killed_from_outside_is_tried_again(
    toy_repository: Path, set_params: SetParams, started: Callable[[], list[str]]
) -> None:
    run(toy_repository, "prepare")
    set_params(left={"mode": "killed_once"})
    result = run(toy_repository, "side@left")
    assert result.outcome is Outcome.EXECUTED
    assert result.attempts == 2
    assert "signal" in result.reason
    assert started() == ["prepare", "left", "left"]


def wait_for_grandchild(root: Path) -> psutil.Process:
    path = root / "grandchild.pid"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, "the stage did not start its child in 120 s"
        time.sleep(0.05)
    return psutil.Process(int(path.read_text()))


def test_a_timeout_is_a_failure_that_is_not_tried_again(
    toy_repository: Path, set_params: SetParams
) -> None:
    run(toy_repository, "prepare")
    set_params(left={"mode": "spawn"})
    result = run(toy_repository, "side@left", timeout_seconds=1.0)
    assert result.outcome is Outcome.FAILED
    assert result.attempts == 1
    assert result.reason == "timeout: not done after 1 s"
    # the killed DVC left nothing behind that stops the next one
    set_params(left={"mode": "work"})
    assert run(toy_repository, "side@left").outcome is Outcome.EXECUTED


def test_a_list_of_locks_that_a_kill_cut_off_is_replaced(toy_repository: Path) -> None:
    (toy_repository / ".dvc/tmp").mkdir(exist_ok=True)
    (toy_repository / ".dvc/tmp/rwlock").write_text("")
    result = run(toy_repository, "prepare")
    assert result.outcome is Outcome.EXECUTED
    assert result.attempts == 2


def test_cancelling_kills_the_whole_tree(toy_repository: Path, set_params: SetParams) -> None:
    run(toy_repository, "prepare")
    set_params(left={"mode": "spawn"})
    cancel = threading.Event()
    threading.Thread(
        target=lambda: (wait_for_grandchild(toy_repository), cancel.set()), daemon=True
    ).start()
    with pytest.raises(StoppedError, match="cancelled after"):
        run_stage(
            "side@left",
            toy_repository,
            on_line=lambda _: None,
            cancel=cancel,
            limits=Limits(),
        )
    pid = int((toy_repository / "grandchild.pid").read_text())
    assert not psutil.pid_exists(pid)


def test_a_path_in_use_by_another_dvc_is_waited_for(
    toy_repository: Path, set_params: SetParams
) -> None:
    # Two runs of one stage want to write the same output: DVC refuses the second at once.
    run(toy_repository, "prepare")
    set_params(left={"mode": "wait"})
    first: list[Result] = []
    thread = threading.Thread(target=lambda: first.append(run(toy_repository, "side@left")))
    thread.start()
    while "left" not in (toy_repository / "started.log").read_text():
        time.sleep(0.05)

    def release_the_first(line: str) -> None:
        if "is busy" in line:
            (toy_repository / "release").touch()

    second = run_stage(
        "side@left",
        toy_repository,
        on_line=release_the_first,
        cancel=threading.Event(),
        limits=Limits(pause_seconds=0.1),
    )
    thread.join()
    assert first[0].outcome is Outcome.EXECUTED
    assert second.outcome is Outcome.SKIPPED
    assert second.attempts >= 2


def test_a_stage_that_prints_of_another_is_not_mistaken_for_it() -> None:
    watch = OutputWatch("a", deque(), lambda _: None)
    watch("Running stage 'ab':")
    watch("  Running stage 'a':")
    assert watch.outcome() is Outcome.SKIPPED
    watch("Running stage 'a':")
    assert watch.outcome() is Outcome.EXECUTED


@pytest.mark.parametrize(
    ("status", "output", "trouble"),
    [
        (255, "ERROR: '/x' is busy, it is being blocked by:", Trouble.BUSY),
        (255, "ERROR: failed to run: python -m stages.a, exited with -9", Trouble.PREEMPTED),
        (255, "ERROR: failed to run: python -m stages.a, exited with 143", Trouble.PREEMPTED),
        (255, "ERROR: failed to run: python -m stages.a, exited with -14", Trouble.PREEMPTED),
        (255, "Error: process of seed 1 ended without a word, exited with -9", Trouble.PREEMPTED),
        (255, "Error: process of seed 1 ended without a word, exited with -11", Trouble.FINAL),
        (255, "a helper exited with -9", Trouble.FINAL),
        (-15, "", Trouble.PREEMPTED),
        (
            255,
            "ERROR: Unable to read RWLock-file '.dvc/tmp/rwlock'. JSON structure is corrupted",
            Trouble.TORN,
        ),
        (255, "ERROR: './dvc.lock' is invalid.", Trouble.TORN),
        (255, "ERROR: './dvc.lock' validation failed.", Trouble.TORN),
        (255, "ERROR: failed to run: python -m stages.a, exited with 1", Trouble.FINAL),
        (255, "ERROR: failed to run: python -m stages.a, exited with -11", Trouble.FINAL),
        (255, "RuntimeError: CUDA out of memory", Trouble.FINAL),
        (255, "all CUDA-capable devices are busy or unavailable", Trouble.PREEMPTED),
    ],
)
def test_only_what_another_attempt_can_cure_is_tried_again(
    status: int, output: str, trouble: Trouble
) -> None:
    assert classify(status, output) is trouble


def test_the_reason_of_a_failure_is_the_line_that_says_most() -> None:
    assert last_words(deque(["x", "ValueError: bad", "ERROR: failed to run"])) == "ValueError: bad"
    assert last_words(deque(["x", "ERROR: a is missing", "see docs"])) == "ERROR: a is missing"
    assert last_words(deque(["x", "y", ""])) == "y"
    assert last_words(deque()) == "no output"
