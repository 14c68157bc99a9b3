"""A process that is asked to end does so in time, its state after the last whole step on disk."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages.loops.state import State

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
COMMON = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where nohup runs the tests
from pathlib import Path
import torch
from stages.loops.work import Step
from stages.models import sharding
from stages.optim import OptimConfig, step_optimizer
from stages.runtime import journal, process, ranks
from seed_runs import make_run

OPTIM = OptimConfig(learning_rate=0.1, warmup_share=0.0, schedule="constant", weight_decay=0.0,
                    max_grad_norm=1.0)

def pause(where, seconds):
    if sys.argv[1] == where:
        print("here", flush=True), time.sleep(seconds)

def learn(state):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = state.optimizer("model", model, OPTIM)
    for index in range(state.step, 4):
        if index == 2:
            pause("before", 60)
        model(torch.ones(2)).sum().backward()
        state.is_updating = True
        step_optimizer(optimizer, OPTIM, index, 4)
        if index == 2:
            pause("within", 1)
            while sys.argv[1] == "stuck":
                pause("stuck", 1)
        state.step = index + 1
        yield Step(index=index, metrics={"loss/a": float(index)})
"""
ALONE = (
    COMMON
    + """
def main(where, seconds):
    process.SECONDS_TO_END = float(seconds)
    with process.listening(), journal.writing(Path("journal.jsonl")) as log:
        run = make_run(folder=Path("."), log=log)
        state = run.resume()
        print("after", state.step, flush=True)
        print([one["loss/a"] for one in run.record(learn(state), total=4)])

process.run(main)
"""
)
TOGETHER = (
    COMMON
    + """
def work(rank):
    sharding.init_process_group()
    folder = Path(f"rank-{rank}")
    folder.mkdir(exist_ok=True)
    with journal.writing(folder / "journal.jsonl") as log:
        run = make_run(rank=rank, folder=folder, log=log)
        state = run.resume()
        first = state.step
        history = run.record(learn(state), total=4)
    print(rank, "after", first, [one["loss/a"] for one in history], flush=True)

def main(where):
    with process.listening(), ranks.joined(work, 2, Path(".")) as rank:
        work(rank)

process.run(main)
"""
)


def test_several_processes_end_together_and_go_on_together(tmp_path):
    process = start(tmp_path, "within", program=TOGETHER)
    assert [process.stdout.readline() for _ in range(2)] == ["here\n", "here\n"]
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)  # to the first alone, as dvc's end is
    output, complaints = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert time.monotonic() - begun < 10
    assert output == ""
    assert "Traceback" not in complaints
    assert State.load(tmp_path / "rank-0/loop/states").step == 3
    assert not (tmp_path / "rank-1/loop/states").exists()
    output, _ = start(tmp_path, "go on", program=TOGETHER).communicate()
    assert sorted(output.splitlines()) == [f"{n} after 3 [0.0, 1.0, 2.0, 3.0]" for n in (0, 1)]


def start(folder: Path, *arguments: str, program: str = ALONE) -> subprocess.Popen[str]:
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "POSTTRAIN_CHECKPOINT_SECONDS": "300",
        "PYTHONUNBUFFERED": "",  # or lines of two processes would mix: print writes the end apart
    }
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def reach_the_pause(process: subprocess.Popen[str]) -> None:
    assert [process.stdout.readline() for _ in range(2)] == ["after 0\n", "here\n"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize(("where", "steps"), [("before", 2), ("within", 3)])
def test_the_state_after_the_last_whole_step_is_kept(where, steps, number, tmp_path):
    process = start(tmp_path, where, "10")
    reach_the_pause(process)
    begun = time.monotonic()
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert time.monotonic() - begun < 10
    assert State.load(tmp_path / "loop/states").step == steps
    output, _ = start(tmp_path, "nowhere", "10").communicate()
    assert output == f"after {steps}\n[0.0, 1.0, 2.0, 3.0]\n"


def test_a_step_that_does_not_end_is_ended_by_the_kernel(tmp_path):
    process = start(tmp_path, "stuck", "1")
    reach_the_pause(process)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == -signal.SIGALRM
    assert time.monotonic() - begun < 5
    assert State.load(tmp_path / "loop/states").step == 0
