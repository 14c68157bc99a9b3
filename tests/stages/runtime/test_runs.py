"""The frame of a stage: what it records, and that it cannot change what a stage writes."""

import os
import pty
import random
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from seed_runs import make_run

from stages.runtime import runs, seeds

FIELDS = {
    "attempt",
    "cpu",
    "device",
    "ended",
    "execution_id",
    "git_commit",
    "git_dirty",
    "host",
    "input_key",
    "memory_at_start_bytes",
    "packages",
    "peak_memory_bytes",
    "peak_memory_of_a_seed_bytes",
    "python",
    "rounding",
    "seconds",
    "stage",
    "started",
    "threads",
}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "runs" not in path.relative_to(folder).parts
    }


def test_run_json_has_every_field_and_utc_times(toy_repo):
    toy_repo.repro("train@sft")
    record = toy_repo.record("train@sft")
    assert set(record) == FIELDS
    assert datetime.fromisoformat(record["started"]).utcoffset().total_seconds() == 0
    assert datetime.fromisoformat(record["ended"]) >= datetime.fromisoformat(record["started"])
    assert 10_000_000 < record["memory_at_start_bytes"] <= record["peak_memory_bytes"]
    assert record["peak_memory_bytes"] < 10_000_000_000
    assert len(record["git_commit"]) == 40
    assert record["git_dirty"] is False
    assert {"torch", "transformers", "dvc"} <= set(record["packages"])


def test_parameters_edited_meanwhile_give_no_result_and_those_of_others_do(toy_repo, monkeypatch):
    monkeypatch.chdir(toy_repo.path)
    message = "train@sft were edited while it ran: `dvc repro`"
    with runs.start("train@sft") as run:
        toy_repo.set_params(rate="0.5")
        with pytest.raises(ValueError, match=message):  # before it learns from others than its own
            seeds.for_each(lambda run: None, make_run, [0], run)
        toy_repo.set_params()
        seeds.for_each(lambda run: None, make_run, [0], run)
    (record,) = Path("data/runs/train/sft").iterdir()
    shutil.rmtree(record)
    with pytest.raises(ValueError, match=message), runs.start("train@sft"):
        toy_repo.set_params(rate="0.5")
    assert list(Path("data/runs/train/sft").iterdir()) == []
    toy_repo.set_params()
    (folder,) = Path(".pipe").glob("train@sft-*")
    assert "edited while it ran" in (folder / "failed.json").read_text()


def test_dirty_is_said_of_changed_code_but_not_of_the_lock_that_the_pipeline_writes(toy_repo):
    toy_repo.repro("train@sft")
    with (toy_repo.path / "work.py").open("a") as file:
        file.write("# edited\n")
    toy_repo.repro("train@dpo")
    record = toy_repo.record("train@dpo")
    assert record["git_dirty"] is True


@pytest.mark.slow
def test_the_runtime_cannot_change_an_output(toy_repo):
    """By hand, by dvc, on a terminal, with GPU slots, after a failure: the same bytes."""
    command = ["python", "work.py", "train@sft"]
    toy_repo.run(*command)
    written = contents(toy_repo.path / "data")
    assert {"policies/sft/model/0/weights", "policies/sft/model/1/weights"} <= set(written)

    toy_repo.repro("train@sft")
    assert contents(toy_repo.path / "data") == written

    toy_repo.run(*command, CUDA_VISIBLE_DEVICES="3,1", MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert contents(toy_repo.path / "data") == written
    assert (toy_repo.path / ".pipe/gpu/3-0.lock").exists()

    toy_repo.run(*command, code=1, TOY_STOP="fail")
    toy_repo.run(*command)
    assert contents(toy_repo.path / "data") == written

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, cwd=toy_repo.path, env=toy_repo.environment, stderr=theirs, stdout=theirs
    )
    os.close(theirs)
    output = b""
    while chunk := read_terminal(ours):
        output += chunk
    assert process.wait() == 0
    assert b"done in" in output
    assert contents(toy_repo.path / "data") == written


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # Linux says that the other end is closed
        return b""


@pytest.mark.slow
def test_a_stage_run_again_by_hand_does_not_write_into_the_cache_that_dvc_linked(toy_repo):
    stage = "sample@dpo"
    toy_repo.repro(stage)
    toy_repo.run("dvc", "checkout", "--relink", stage)
    pool = toy_repo.path / "data/samples/dpo/0/test.jsonl"
    written = pool.read_bytes()
    assert pool.stat().st_nlink == 2
    toy_repo.set_params(seed=1)
    toy_repo.run("python", "work.py", stage)
    assert pool.read_bytes() != written
    toy_repo.run("dvc", "checkout", "--force", stage)
    assert pool.read_bytes() == written


def test_starting_draws_no_random_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random.seed(0)
    before = random.getstate()
    with runs.start("toy") as run:
        run.log(0, {"loss": 1})
        assert random.getstate() == before
    assert random.getstate() == before
    (record,) = Path("data/runs/toy").iterdir()
    assert sorted(path.name for path in record.iterdir()) == ["journal.jsonl", "run.json"]
    assert sorted(path.name for path in Path("data/journals/toy").iterdir()) == [
        "journal.jsonl",
        "key.json",
    ]
    assert list(Path(".pipe").glob("toy-*")) == []


def test_a_temporary_copy_leaves_its_record_in_the_checkout(tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))  # as `dvc exp run --temp` sets it
    with runs.start("toy"):
        pass
    assert len(list((tmp_path / "data/runs/toy").iterdir())) == 1
    assert (copy / "data/journals/toy/key.json").exists()
    assert not (copy / "data/runs").exists()


def test_an_interrupted_stage_keeps_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt), runs.start("toy") as run:
        raise KeyboardInterrupt
    assert (run.folder / "failed.json").exists()
    assert not Path("data").exists()
