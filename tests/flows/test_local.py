"""Stages side by side give what `dvc repro` gives; their order, and what a failure stops."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flows.execute import Result, StageOutcome
from flows.local import run_plan
from flows.plan import StageNode
from flows.process import Runner, exit_when_terminated


def local(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.local", *arguments]
    return subprocess.run(
        command, cwd=root, check=False, capture_output=True, text=True, timeout=400
    )


@pytest.mark.slow
def test_parallel_and_serial_runs_write_the_same_lock(
    checkout_with_flows: Path, started: Callable[[], list[str]]
) -> None:
    root = checkout_with_flows
    result = local(root, "-j", "3")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 executed" in result.stdout
    assert "side@left | working on data/side/left" in result.stdout
    parallel = (root / "dvc.lock").read_bytes()
    outputs = [path.read_bytes() for path in sorted((root / "data").rglob("out.txt"))]
    assert sorted(started()) == ["left", "prepare", "right", "track"]

    for path in (root / "data", root / ".dvc/cache"):
        shutil.rmtree(path)
    (root / "dvc.lock").unlink()
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=root, check=True)
    assert len(started()) == 8, "the serial run must really have run"
    assert locked(root) == locked(root, parallel)
    assert [path.read_bytes() for path in sorted((root / "data").rglob("out.txt"))] == outputs

    again = local(root)
    assert "4 skipped" in again.stdout
    assert len(started()) == 8


def test_a_dry_run_lists_what_would_run_before_its_inputs_are_made(
    checkout_with_flows: Path, started: Callable[[], list[str]]
) -> None:
    result = local(checkout_with_flows, "-n")
    assert result.returncode == 0, result.stderr
    names = [line.partition(":")[0] for line in result.stdout.splitlines()]
    assert sorted(names) == ["prepare", "side@left", "side@right", "track"]
    assert started() == []


def locked(root: Path, content: bytes | None = None) -> dict[str, object]:
    """The entries of a dvc.lock; their order in the file is the order in which stages ended."""
    from ruamel.yaml import YAML

    text = (root / "dvc.lock").read_bytes() if content is None else content
    return YAML(typ="safe").load(text)["stages"]


def test_a_failure_blocks_its_descendants_and_the_exit_status_says_so(
    checkout_with_flows: Path, set_params: Callable[..., None]
) -> None:
    set_params(left={"mode": "value_error"})
    result = local(checkout_with_flows)
    assert result.returncode == 1
    assert "2 executed, 1 failed, 1 blocked" in result.stdout
    assert "ValueError" in result.stdout


def test_ending_the_run_ends_its_stages(
    checkout_with_flows: Path,
    set_params: Callable[..., None],
    grandchild: Callable[[], psutil.Process],
) -> None:
    set_params(left={"mode": "spawn"})
    command = [sys.executable, "-m", "flows.local", "side@left"]
    flow = subprocess.Popen(command, cwd=checkout_with_flows, stdout=subprocess.PIPE)
    process = grandchild()
    flow.send_signal(signal.SIGTERM)
    flow.communicate(timeout=120)
    assert flow.returncode == 128 + signal.SIGTERM
    psutil.wait_procs([process], timeout=5)
    assert not process.is_running()


def test_a_wrong_stage_is_named_with_those_there_are(checkout_with_flows: Path) -> None:
    result = local(checkout_with_flows, "trian")
    assert result.returncode == 2
    assert "no stage 'trian'" in result.stderr
    assert "side@left" in result.stderr


def node(name: str, *upstream: str) -> StageNode:
    return StageNode(name=name, deps=(), outs=(), params=(), upstream=upstream, gpu=0)


# a -> b, c, d -> e
NODES = (node("a"), node("b", "a"), node("c", "a"), node("d", "a"), node("e", "b", "c", "d"))
PLAN = {item.name: item for item in NODES}


class Recorder:
    """Runs stages that do nothing; notes their order and how many ran at once."""

    def __init__(self, failing: str = "") -> None:
        self.order: list[str] = []
        self.running = self.most = 0
        self.failing = failing
        self.lock = threading.Lock()

    def run(self, stage: StageNode) -> Result:
        with self.lock:
            self.order.append(stage.name)
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(0.05)
        with self.lock:
            self.running -= 1
        if stage.name == self.failing == "c":
            raise OSError("no threads")
        failed = stage.name == self.failing
        return Result(
            name=stage.name, outcome=StageOutcome.FAILED if failed else StageOutcome.EXECUTED
        )


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (2, 2), (9, 3)])
def test_independent_stages_run_side_by_side_up_to_the_limit(
    tmp_path: Path, limit: int, most: int
) -> None:
    recorder = Recorder()
    results = run_plan(PLAN, recorder.run, Runner(root=tmp_path), limit)
    assert recorder.most == most
    assert list(results) == ["a", "b", "c", "d", "e"]
    assert recorder.order[0] == "a"
    assert recorder.order[-1] == "e"


@pytest.mark.parametrize("failing", ["b", "c"])  # by its result, by an error in the flow
def test_a_failure_blocks_what_needs_it_and_nothing_else(tmp_path: Path, failing: str) -> None:
    recorder = Recorder(failing)
    results = run_plan(PLAN, recorder.run, Runner(root=tmp_path), 1)
    outcomes = {name: result.outcome.value for name, result in results.items()}
    assert outcomes == dict.fromkeys("abcd", "executed") | {failing: "failed", "e": "blocked"}
    assert results["e"].reason == f"needs {failing}"
    assert "e" not in recorder.order


def test_an_interrupt_cancels_what_runs_and_starts_nothing_else(tmp_path: Path) -> None:
    runner = Runner(root=tmp_path)
    order: list[str] = []

    def run(stage: StageNode) -> Result:
        order.append(stage.name)
        if stage.name == "b":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
            assert runner.cancel.wait(60)
        return Result(name=stage.name, outcome=StageOutcome.EXECUTED)

    before = signal.getsignal(signal.SIGTERM)
    exit_when_terminated()
    try:
        with pytest.raises(SystemExit):
            run_plan(PLAN, run, runner, 1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert order == ["a", "b"]


def test_no_stage_at_a_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        run_plan(PLAN, Recorder().run, Runner(root=tmp_path), 0)
