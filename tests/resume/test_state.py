"""Checkpoints of a loop; that it resumes from them to the bit is in `test_every_loop`."""

import errno
import os
import threading
import time

import pytest
from every_loop import Setup

from stages.loops.state import State
from stages.runtime import checkpoints


def start(name, state):
    return Setup(name, is_exact=False).steps([[0, 1, 2]], state=state)


def test_a_run_that_was_over_takes_no_step(tmp_path):
    for name in ("sft", "grpo_deepseekmath"):
        state = State()
        assert len(list(start(name, state))) == 1
        state.save(tmp_path / name)
        assert list(start(name, State.load(tmp_path / name))) == []


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    state = State()
    next(start("sft", state))
    state.save(tmp_path)
    with pytest.raises(ValueError, match="of another model"):
        next(start("reward", State.load(tmp_path)))


def test_where_there_is_none_a_run_begins(tmp_path):
    assert State.load(tmp_path / "nothing").step == 0


@pytest.mark.parametrize("damage", ["torn", "truncated", "flipped", "without a manifest", "grown"])
def test_of_a_damaged_checkpoint_the_one_before_is_used(damage, tmp_path, caplog):
    folder, grown = tmp_path / "states", tmp_path / "history.jsonl"
    grown.write_bytes(b"one\ntwo\n")
    for step, length in ((1, 4), (2, 8)):
        checkpoints.write(folder, step, lambda p: (p / "a").write_bytes(bytes(99)), {grown: length})
    last = folder / "step-00000002"
    match damage:
        case "torn":
            (last / "a").unlink()
        case "truncated":
            (last / "a").write_bytes(bytes(98))
        case "flipped":
            (last / "a").write_bytes(bytes(98) + b"\1")
        case "without a manifest":
            (last / "manifest.json").write_text("")
        case "grown":
            grown.write_bytes(b"one\ntwx\n")
    result = checkpoints.find_last_checkpoint(folder)
    assert result == folder / "step-00000001"
    assert checkpoints.outside_lengths(result) == {grown: 4}
    assert "step-00000002 is damaged" in caplog.text
    grown.write_bytes(b"")
    assert checkpoints.find_last_checkpoint(folder) is None


def test_two_are_kept_and_what_a_kill_left_is_none(tmp_path):
    (tmp_path / ".step-00000004.partial").mkdir()
    for step in (1, 2, 3):
        checkpoints.write(tmp_path, step, lambda path: (path / "a").touch(), {})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-00000002", "step-00000003"]


def test_an_error_of_the_disk_that_may_pass_removes_none(tmp_path, monkeypatch, caplog):
    checkpoints.write(tmp_path, 1, lambda path: (path / "a").touch(), {})

    def fail(*_):
        raise OSError(errno.EIO, "the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_digest", fail)
        assert checkpoints.find_last_checkpoint(tmp_path) is None
        assert "cannot be read" in caplog.text
    assert checkpoints.find_last_checkpoint(tmp_path) == tmp_path / "step-00000001"


def test_one_that_cannot_be_written_is_a_warning(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv(checkpoints.INTERVAL_VARIABLE, "0")
    (tmp_path / "file").touch()
    writer = checkpoints.Writer(tmp_path / "file/states")
    assert writer.due()
    writer.write(1, lambda path: (path / "a").touch(), {})
    writer.wait()
    assert "no checkpoint of step 1" in caplog.text


def test_the_work_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv(checkpoints.INTERVAL_VARIABLE, "0")
    written, writer = threading.Event(), checkpoints.Writer(tmp_path)
    writer.write(1, lambda path: (written.wait(), (path / "a").touch()), {})
    assert not writer.due()
    assert checkpoints.find_last_checkpoint(tmp_path) is None
    written.set()
    writer.wait()
    assert writer.due()
    assert checkpoints.find_last_checkpoint(tmp_path) == tmp_path / "step-00000001"


def test_the_clock_set_back_makes_no_checkpoint_late_and_no_old_one_the_last(tmp_path, monkeypatch):
    monkeypatch.setenv(checkpoints.INTERVAL_VARIABLE, "0.2")
    writer = checkpoints.Writer(tmp_path)
    monkeypatch.setattr("time.time", lambda: 0.0)
    time.sleep(0.3)
    assert writer.due()
    checkpoints.write(tmp_path, 1, lambda path: (path / "a").touch(), {})
    os.utime(tmp_path / "step-00000001", (2e9, 2e9))
    checkpoints.write(tmp_path, 2, lambda path: (path / "a").touch(), {})
    assert checkpoints.find_last_checkpoint(tmp_path) == tmp_path / "step-00000002"


@pytest.mark.parametrize("told", ["soon", "-1", "nan", ""])
def test_seconds_that_are_no_number_are_refused(told, monkeypatch):
    monkeypatch.setenv(checkpoints.INTERVAL_VARIABLE, told)
    with pytest.raises(ValueError, match="POSTTRAIN_CHECKPOINT_SECONDS: expected seconds"):
        checkpoints.read_interval()
