"""The outcome of one stage, on a real DVC repository."""

import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from clones import GIT, wait_until

from flows.execute import (
    Result,
    StageOutcome,
    StageOutput,
    Trouble,
    classify,
    find_error,
    run_stage,
)
from flows.plan import make_plan
from flows.process import Runner, StoppedError

SetParams = Callable[..., None]


@pytest.fixture
def runner(toy_repository: Path) -> Runner:
    return Runner(root=toy_repository, pause_seconds=0.1)


@pytest.fixture
def run_left(runner: Runner, set_params: SetParams) -> Callable[[str], Result]:
    """`run_left(mode)` runs side@left, whose input exists; pytest shows its output."""
    assert run_stage("prepare", runner).outcome is StageOutcome.EXECUTED

    def run(mode: str) -> Result:
        set_params(left={"mode": mode})
        return run_stage("side@left", runner)

    return run


def test_executed_then_skipped_then_restored(runner: Runner) -> None:
    lines: list[str] = []
    result = run_stage("prepare", replace(runner, log=lines.append))
    assert (result.outcome, result.attempts, result.reason) == (StageOutcome.EXECUTED, 1, "")
    assert "working on data/prepare" in lines
    assert run_stage("prepare", runner).outcome is StageOutcome.SKIPPED
    # outputs lost, then dvc.lock lost: each time the cache has them
    shutil.rmtree(runner.root / "data/prepare")
    assert run_stage("prepare", runner).outcome is StageOutcome.RESTORED
    (runner.root / "dvc.lock").unlink()
    assert run_stage("prepare", runner).outcome is StageOutcome.RESTORED


def test_a_parameter_that_is_changed_back_restores(run_left: Callable[[str], Result]) -> None:
    outcomes = [run_left(mode).outcome.value for mode in ("work", "other", "work")]
    assert outcomes == ["executed", "executed", "restored"]


@pytest.mark.slow
def test_a_dvc_lock_that_a_kill_cut_off_costs_nothing(
    runner: Runner, run_left: Callable[[str], Result]
) -> None:
    lock = runner.root / "dvc.lock"
    for words in (["add", "dvc.lock"], ["commit", "-qm", "prepare"]):
        subprocess.run([*GIT, *words], cwd=runner.root, check=True)
    committed = lock.read_text()
    run_left("work")
    whole = lock.read_text()
    # between two lines, which DVC accepts, and within a word, which it does not
    torn = whole.rindex("md5:") + 2
    for cut in (whole.rindex("outs:") - 1, torn):
        lock.write_text(whole[:cut])
        (runner.root / ".dvc/tmp/rwlock").write_text('{"read": {')
        assert run_stage("side@left", runner).outcome is StageOutcome.RESTORED
        assert lock.read_text() == whole
    lock.write_text(whole[:torn])
    assert not make_plan(runner.root, ["prepare"])["prepare"].changes
    assert lock.read_text() == committed


def test_a_list_of_locks_that_a_kill_cut_off_is_replaced(runner: Runner) -> None:
    (runner.root / ".dvc/tmp").mkdir(exist_ok=True)
    (runner.root / ".dvc/tmp/rwlock").write_text("")
    result = run_stage("prepare", runner)
    assert (result.outcome, result.attempts) == (StageOutcome.EXECUTED, 2)


def test_a_kill_that_tears_dvc_lock_is_followed_by_an_attempt_that_ends(
    runner: Runner, run_left: Callable[[str], Result]
) -> None:
    work = runner.root / "work.py"
    tear = '    pathlib.Path("dvc.lock").write_text("stages:\\n  prepare")\n    os.kill('
    work.write_text(work.read_text().replace("    os.kill(", tear))
    run_stage("prepare", runner)
    result = run_left("killed_once")
    assert (result.outcome, result.attempts) == (StageOutcome.EXECUTED, 3), result.reason


def test_an_error_in_the_stage_fails_at_once_with_its_message(
    run_left: Callable[[str], Result], started: Callable[[], list[str]]
) -> None:
    result = run_left("value_error")
    assert (result.outcome, result.attempts) == (StageOutcome.FAILED, 1)
    assert result.reason == "failed: ValueError: expected a number, found a word"
    assert started() == ["prepare", "left"]


def test_a_stage_killed_from_outside_is_tried_again(
    run_left: Callable[[str], Result], started: Callable[[], list[str]]
) -> None:
    result = run_left("killed_once")
    assert (result.outcome, result.attempts) == (StageOutcome.EXECUTED, 2)
    assert "signal" in result.reason
    assert started() == ["prepare", "left", "left"]


@pytest.mark.parametrize("seeds_per_gpu", [None, "1", "2"])
def test_a_stage_is_tried_again_that_found_the_memory_of_a_shared_gpu_full(
    run_left: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch, seeds_per_gpu: str | None
) -> None:
    if seeds_per_gpu is not None:
        monkeypatch.setenv("POSTTRAIN_SEEDS_PER_GPU", seeds_per_gpu)
    result = run_left("full_once")
    assert "CUDA out of memory" in result.reason
    expected = (StageOutcome.EXECUTED, 2) if seeds_per_gpu == "2" else (StageOutcome.FAILED, 1)
    assert (result.outcome, result.attempts) == expected


def test_a_timeout_is_a_failure_that_is_not_tried_again(
    runner: Runner, set_params: SetParams
) -> None:
    run_stage("prepare", runner)
    set_params(left={"mode": "spawn"})
    result = run_stage("side@left", replace(runner, timeout_seconds=1.0))
    assert (result.outcome, result.attempts) == (StageOutcome.FAILED, 1)
    assert result.reason == "timeout: not done after 1 s"
    # the killed DVC left nothing behind that stops the next one
    set_params(left={"mode": "work"})
    assert run_stage("side@left", runner).outcome is StageOutcome.EXECUTED


def test_cancelling_kills_the_whole_tree(
    runner: Runner, run_left: Callable[[str], Result], grandchild: Callable[[], psutil.Process]
) -> None:
    processes: list[psutil.Process] = []

    def cancel() -> None:
        processes.append(grandchild())
        runner.cancel.set()

    threading.Thread(target=cancel, daemon=True).start()
    with pytest.raises(StoppedError, match="cancelled after"):
        run_left("spawn")
    assert not processes[0].is_running()


def test_a_path_in_use_by_another_dvc_is_waited_for(
    runner: Runner, run_left: Callable[[str], Result], started: Callable[[], list[str]]
) -> None:
    # Two runs of one stage want to write the same output: DVC refuses the second at once.
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(run_left("wait")))
    thread.start()
    wait_until(lambda: "left" in started(), 120, "the first run at work")

    def release_the_first(line: str) -> None:
        if "is busy" in line:
            (runner.root / "release").touch()

    second = run_stage("side@left", replace(runner, log=release_the_first))
    thread.join()
    assert results[0].outcome is StageOutcome.EXECUTED
    assert second.outcome is StageOutcome.SKIPPED
    assert second.attempts >= 2


def test_a_stage_that_prints_of_another_is_not_mistaken_for_it() -> None:
    output = StageOutput("a", lambda _: None)
    for line in ("Running stage 'ab':", "  Running stage 'a':"):
        output.add_line(line)
    assert output.outcome is StageOutcome.SKIPPED
    output.add_line("Running stage 'a':")
    assert output.outcome is StageOutcome.EXECUTED


EXITED = "ERROR: failed to run: python -m stages.a, exited with"
CUDA_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."
SEED_ENDED = "Error: process of seed 1 ended without a word, exited with"


@pytest.mark.parametrize(
    ("status", "output", "trouble"),
    [
        (255, "ERROR: '/x' is busy, it is being blocked by:", Trouble.BUSY),
        (255, f"{EXITED} -9", Trouble.PREEMPTED),
        (255, f"{EXITED} 143", Trouble.PREEMPTED),
        (255, f"{EXITED} -14", Trouble.PREEMPTED),
        (255, f"{SEED_ENDED} -9", Trouble.PREEMPTED),
        (255, f"{SEED_ENDED} -11", Trouble.FINAL),
        (255, "a helper exited with -9", Trouble.FINAL),
        (-15, "", Trouble.PREEMPTED),
        (255, "Unable to read RWLock-file '.dvc/tmp/rwlock'. JSON structure is", Trouble.TORN),
        (255, "ERROR: './dvc.lock' is invalid.", Trouble.TORN),
        (255, "ERROR: './dvc.lock' validation failed.", Trouble.TORN),
        (255, f"{EXITED} 1", Trouble.FINAL),
        (255, f"{EXITED} -11", Trouble.FINAL),
        (255, CUDA_MEMORY, Trouble.FINAL),
        (255, "all CUDA-capable devices are busy or unavailable", Trouble.PREEMPTED),
    ],
)
def test_only_what_another_attempt_can_cure_is_tried_again(
    status: int, output: str, trouble: Trouble
) -> None:
    assert classify(status, output) is trouble
    of_shared = Trouble.FULL if output == CUDA_MEMORY else trouble
    assert classify(status, output, is_gpu_shared=True) is of_shared


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["x", "ValueError: bad", "ERROR: failed to run"], "ValueError: bad"),
        (["x", "ERROR: a is missing", "see docs"], "ERROR: a is missing"),
        (["x", "y", ""], "y"),
        ([], "no output"),
    ],
)
def test_the_reason_of_a_failure_is_the_line_that_explains_it(lines: list[str], error: str) -> None:
    assert find_error(lines) == error
