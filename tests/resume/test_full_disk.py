"""A disk without room costs a checkpoint, or the attempt; never the run, and never a bit."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from seed_runs import make_run

from stages.loops.state import State
from stages.loops.work import Step
from stages.optim import OptimConfig, step_optimizer
from stages.runtime import checkpoints, journal

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
        state.is_updating = True
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
                time.sleep(0.1)  # a checkpoint is written meanwhile
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
