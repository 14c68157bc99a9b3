"""The Prefect flow on the toy repository, with a server that lives as long as the flow."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest


def start_flow(root: Path, environment: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "flows.pipeline", *arguments]
    return subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_one_task_a_stage_with_its_outcome_as_its_state(
    checkout_with_flows: Path,
    prefect_environment: dict[str, str],
    set_params: Callable[..., None],
    started: Callable[[], list[str]],
) -> None:
    set_params(right={"mode": "value_error", "time": "12:34:56 "})
    subprocess.run(
        [sys.executable, "-m", "flows.local", "side@left"], cwd=checkout_with_flows, check=True
    )
    for path in (checkout_with_flows / "data/side/left").iterdir():
        path.unlink()
    flow = start_flow(checkout_with_flows, prefect_environment, "-j", "2")
    output, _ = flow.communicate(timeout=400)
    assert flow.returncode == 1, output
    assert "Task run 'side@right' - working on" in output  # without the stage's own time
    assert "Task run 'prepare' - Finished in state Skipped(type=COMPLETED)" in output
    assert "Task run 'side@left' - Finished in state Restored(type=COMPLETED)" in output
    assert "Task run 'side@right' - Finished in state Failed" in output
    assert "ValueError: expected a number, found a word" in output
    assert "1 restored, 1 skipped, 1 failed, 1 blocked" in output
    assert "Task run 'track'" not in output
    # the error is final: it was not tried a second time
    assert started() == ["prepare", "left", "right"]


@pytest.mark.slow
def test_ending_the_flow_ends_its_stages(
    checkout_with_flows: Path,
    prefect_environment: dict[str, str],
    set_params: Callable[..., None],
    grandchild: Callable[[], psutil.Process],
) -> None:
    # SIGTERM is what a process worker sends when a run is cancelled.
    set_params(left={"mode": "spawn"})
    flow = start_flow(checkout_with_flows, prefect_environment, "side@left")
    process = grandchild()
    flow.send_signal(signal.SIGTERM)
    output, _ = flow.communicate(timeout=120)
    assert flow.returncode != 0, output
    psutil.wait_procs([process], timeout=5)
    assert not process.is_running(), output
