"""A process that is asked to end does so, its state after the last whole step on disk; and a disk
without room costs a checkpoint, or the attempt, never the run, and never a bit."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from seed_runs import make_run

from stages.loops.resume import LoopRecord
from stages.loops.state import State
from stages.loops.work import Step
from stages.optim import OptimConfig, step_optimizer
from stages.runtime import checkpoints, journal, process

ROOT = Path(__file__).parents[2]
COMMON = """
import logging, signal, sys, time
logging.basicConfig(level="INFO")
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where nohup runs the tests
signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background of a shell
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
        step_optimizer(optimizer, OPTIM, index, 4)
        pause("within", 60 if index == 2 else 0.6)
        while index == 2 and sys.argv[1] == "stuck":
            try:
                pause("stuck", 1)
            except BaseException:  # as code of others may
                pass
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
        print([step["loss/a"] for step in run.record(learn(state), total=4)])

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
    print(rank, "after", first, [step["loss/a"] for step in history], flush=True)

def main(where):
    with process.listening(), ranks.joined(work, 2, Path(".")) as rank:
        work(rank)

process.run(main)
"""
)


@pytest.mark.slow
def test_several_processes_end_together_and_go_on_together(tmp_path):
    process = start(tmp_path, "within", program=TOGETHER, interval="0")
    assert [process.stdout.readline() for _ in range(6)] == ["here\n"] * 6
    process.send_signal(signal.SIGTERM)  # to the first alone, as dvc's end is
    output, complaints = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert output in ("", "here\n"), "a signal within its printing prints it again"
    assert "Traceback" not in complaints
    assert State.load(tmp_path / "rank-0/loop/states").step == 2
    assert not (tmp_path / "rank-1/loop/states").exists()
    output, _ = start(tmp_path, "go on", program=TOGETHER).communicate()
    assert sorted(output.splitlines()) == [f"{n} after 2 [0.0, 1.0, 2.0, 3.0]" for n in (0, 1)]


def start(
    folder: Path, *arguments: str, program: str = ALONE, interval: str = "300"
) -> subprocess.Popen[str]:
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "POSTTRAIN_CHECKPOINT_SECONDS": interval,
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


@pytest.mark.slow
@pytest.mark.parametrize(("where", "interval", "number", "steps"), [
    # weights are those after step 2: they are written now
    pytest.param("before", "300", signal.SIGINT, 2, marks=pytest.mark.weekly),
    ("within", "0", signal.SIGTERM, 2),  # in its update, which takes a minute: they were written
    pytest.param("within", "300", signal.SIGHUP, 0, marks=pytest.mark.weekly),
])  # fmt: skip
def test_a_stop_drops_the_present_step_and_keeps_what_is_whole(
    where, interval, number, steps, tmp_path
):
    process = start(tmp_path, where, "1", interval=interval)
    reach_the_pause(process)
    if where == "within":
        assert [process.stdout.readline() for _ in range(2)] == ["here\n"] * 2
    process.send_signal(number)
    _, messages = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert (f"resumes after step {steps}" if steps else "no step of it is saved") in messages
    assert State.load(tmp_path / "loop/states").step == steps
    output, _ = start(tmp_path, "nowhere", "10").communicate()
    assert output == f"after {steps}\n[0.0, 1.0, 2.0, 3.0]\n"


def test_a_state_can_be_copied_between_a_step_and_the_next_update(tmp_path):
    with journal.writing(tmp_path / "journal.jsonl") as log:
        run = make_run(folder=tmp_path, log=log)
        state = run.resume()
        record = LoopRecord(run, state, tmp_path / "loop")
        assert record.can_copy()
        state.begin_update()
        assert not record.can_copy()
        state.step = 1
        assert not record.can_copy(), "its lines are being written"
        record.end_step()
        assert record.can_copy()
        state.step = 2
        assert not record.can_copy(), "the lines of a step without an update, too"


@pytest.mark.slow
def test_a_step_that_does_not_end_is_ended_by_the_kernel(tmp_path):
    process = start(tmp_path, "stuck", "1")
    reach_the_pause(process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == -signal.SIGALRM
    assert State.load(tmp_path / "loop/states").step == 0


def test_a_stop_has_its_minute_before_an_earlier_checkpoint_is_waited_for(tmp_path, monkeypatch):
    calls: list[str] = []
    monkeypatch.setattr(process._stop_request, "requested", True)
    monkeypatch.setattr(process, "extend", lambda _: calls.append("extend"))
    monkeypatch.setattr(checkpoints.Writer, "write", lambda *_: calls.append("write"))
    with journal.writing(tmp_path / "journal.jsonl") as log:
        run = make_run(folder=tmp_path, log=log)
        steps = learn(run.resume(), 1, {})
        with pytest.raises(process.Stopped):
            run.record(steps, total=NUM_STEPS)
    assert calls[:2] == ["extend", "write"]


# A full disk.

OPTIM = OptimConfig(
    learning_rate=0.1, warmup_share=0.0, schedule="constant", weight_decay=0.0, max_grad_norm=1.0
)
NUM_STEPS, SMALL_DISK = 6, 400_000


def learn(state: State, width: int, weights: dict[str, torch.Tensor]) -> Iterator[Step]:
    torch.manual_seed(0)
    model = torch.nn.Linear(width, 1)
    optimizer = state.optimizer("model", model, OPTIM)
    for index in range(state.step, NUM_STEPS):
        (model(torch.ones(width)) ** 2).sum().backward()
        metrics = step_optimizer(optimizer, OPTIM, index, NUM_STEPS)
        state.step = index + 1
        weights |= {name: value.clone() for name, value in model.state_dict().items()}
        yield Step(index=index, metrics={**metrics})


def take(folder: Path, width: int, until: int = NUM_STEPS) -> tuple[list, dict]:
    """Steps from where the folder is; the disk is filled after step `until`."""
    folder.mkdir(exist_ok=True)
    weights: dict[str, torch.Tensor] = {}
    with journal.writing(folder / "journal.jsonl") as log:
        run = make_run(folder=folder, log=log)
        state = run.resume()

        def steps() -> Iterator[Step]:
            for step in learn(state, width, weights):
                for thread in threading.enumerate():
                    if "_write" in thread.name:  # a checkpoint's
                        thread.join()
                if step.index == until:
                    with (folder.parent / "filler").open("wb") as file:
                        os.posix_fallocate(file.fileno(), 0, 1)
                        while True:
                            file.write(bytes(4096))
                            file.flush()
                yield step

        history = run.record(steps(), total=NUM_STEPS)
    return history, weights


def test_no_room_for_a_checkpoint_is_a_warning(small_disk, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(checkpoints.INTERVAL_VARIABLE, "0")
    expected = take(tmp_path / "large", 50_000)
    actual = take(small_disk / "run", 50_000)
    assert actual[0] == expected[0]
    assert torch.equal(actual[1]["weight"], expected[1]["weight"])
    assert "no checkpoint of step 1" in caplog.text
    assert "No space left" in caplog.text


def test_a_run_that_a_full_disk_ended_goes_on_when_there_is_room(small_disk, tmp_path, monkeypatch):
    monkeypatch.setenv(checkpoints.INTERVAL_VARIABLE, "0")
    expected = take(tmp_path / "large", 100)
    with pytest.raises(OSError, match="No space left"):
        take(small_disk / "run", 100, until=3)
    (small_disk / "filler").unlink()
    assert 0 < State.load(small_disk / "run/loop/states").step <= 3
    actual = take(small_disk / "run", 100)
    assert actual[0] == expected[0]
    assert torch.equal(actual[1]["weight"], expected[1]["weight"])
