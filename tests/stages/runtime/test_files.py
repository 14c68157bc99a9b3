"""Outputs, parts, checkpoints and journals: whole or not at all, whatever a kill left."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages.runtime import checkpoints, journal, outputs, process


def read_tree(folder):
    """Every path below a folder, with the text of a file."""
    return {path.relative_to(folder).as_posix(): path.read_text() if path.is_file() else None
            for path in folder.rglob("*")}  # fmt: skip


ROWS = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))
NEW = {"file": {"out": "new"}, "folder": {"out": None, "out/weights": "new"}}
FORMER = {
    "nothing": {}, "file": {"out": "former"}, "folder": {"out/stale": "former"},
    "link": {"out": Path("../cache")}, "hard link": {"out": Path("../cache")},
    "rest of a kill": {"out/stale": "former", ".out.partial/rest": "half", ".out.old/rest": "old"},
}  # fmt: skip
"""What is there before; a path is a link to it."""


def write(path, kind):
    if kind == "folder":
        path.mkdir()
        path /= "weights"
    path.write_text("new")


@pytest.fixture(params=FORMER)
def former(request, tmp_path):
    """The name of what was there, in a folder beside a read-only file to which it may be linked."""
    cache, folder = tmp_path / "cache", tmp_path / "data"
    cache.write_text("cached")
    cache.chmod(0o444)
    for name, content in FORMER[request.param].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
            path.chmod(0o444)
        elif request.param == "link":
            path.symlink_to(content)
        else:
            path.hardlink_to(cache)
    yield request.param
    assert cache.read_text() == "cached"


@pytest.mark.parametrize("kind", NEW)
def test_an_output_takes_the_place_of_whatever_was_there(former, kind, tmp_path):
    folder = tmp_path / "data"
    if (folder / "out").is_dir() and kind == "file":
        pytest.skip("no stage writes a file where a folder was")
    before = read_tree(folder).get("out")
    with outputs.replace(folder / "out") as temporary:
        write(temporary, kind)
        assert temporary.parent == folder
        assert read_tree(folder).get("out") == before, "the former stays until the end"
    assert read_tree(folder) == NEW[kind]
    assert not (folder / "out").is_symlink()


@pytest.mark.parametrize("kind", NEW)
def test_a_failure_leaves_the_former_output_and_no_rest(former, kind, tmp_path):
    if former == "rest of a kill":
        pytest.skip("of which nothing stays, whatever happens")
    before = read_tree(tmp_path)

    def fail():
        with outputs.replace(tmp_path / "data/out") as temporary:
            write(temporary, kind)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert read_tree(tmp_path) == before
    with pytest.raises(AssertionError), outputs.replace(tmp_path / "data/out"):
        pass  # writes nothing
    assert read_tree(tmp_path) == before


EXPECTED = [f"part {index}" for index in range(5)]


def go_on(folder, begun):
    def work(start):
        begun.append(start)
        yield from EXPECTED[start:]

    return outputs.keep_parts(folder, work)


@pytest.mark.parametrize("damage", [
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(path.read_bytes().replace(b"2", b"3")),
    lambda path: path.rename(path.with_name(".000002.part.partial")),
], ids=["torn", "flipped", "not in place"])  # fmt: skip
def test_a_damaged_part_is_made_again_with_those_after_it(damage, tmp_path):
    begun = []
    for number, part in enumerate(go_on(tmp_path, begun), start=1):
        assert len(list(tmp_path.glob("*.part"))) == number, f"{part} is on disk before it is used"
    damage(sorted(tmp_path.glob("*.part"))[2])
    for _ in range(2):
        assert list(go_on(tmp_path, begun)) == EXPECTED
    assert begun == [0, 2, 5]


def test_no_part_is_kept_after_a_request_to_end_that_the_work_caught(tmp_path, monkeypatch):
    parts, begun = go_on(tmp_path / "parts", []), []
    assert next(parts) == "part 0"
    monkeypatch.setattr(process, "_stop_request", process._StopRequest(requested=True))
    with pytest.raises(process.Stopped):
        next(parts)
    monkeypatch.undo()
    assert list(go_on(tmp_path / "parts", begun)) == EXPECTED
    assert begun == [1]


def write_checkpoints(folder):
    """Of three steps, with a journal outside that grows."""
    log = folder.parent / "log"
    for step in range(1, 4):
        log.write_text("x" * step)
        checkpoints.write(
            folder, step, lambda path, step=step: (path / "weights").write_text(f"{step}"),
            {log: step},
        )  # fmt: skip
    return folder / "step-00000002", folder / "step-00000003"


DAMAGES = {
    "torn": lambda last: (last / "weights").unlink(),
    "truncated": lambda last: (last / "weights").write_text(""),
    "flipped": lambda last: (last / "weights").write_text("?"),
    "without a manifest": lambda last: (last / "manifest.json").write_text(""),
    "another journal": lambda last: (last.parents[1] / "log").write_text("xx?"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_last_two_checkpoints_stay_and_damaged_ones_are_not_used(damage, tmp_path, caplog):
    folder = tmp_path / "loop"
    second, third = write_checkpoints(folder)
    assert sorted(folder.iterdir()) == [second, third]
    assert checkpoints.find_last_checkpoint(folder) == third
    assert checkpoints.outside_lengths(third) == {tmp_path / "log": 3}
    DAMAGES[damage](third)
    assert checkpoints.find_last_checkpoint(folder) == second
    assert not third.exists()
    assert third.name in caplog.text
    (tmp_path / "log").write_text("x")  # shorter than when it was written
    assert checkpoints.find_last_checkpoint(folder) is None
    assert list(folder.iterdir()) == []


def test_a_checkpoint_that_cannot_be_written_leaves_none(tmp_path):
    def fail(path):
        (path / "weights").write_text("half")
        raise OSError

    (tmp_path / ".step-00000007.partial").mkdir()  # of a kill
    with pytest.raises(OSError, match=r"^$"):
        checkpoints.write(tmp_path, 1, fail, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "seconds"), ROWS["intervals"].items())
def test_the_interval_of_checkpoints_is_a_number_from_0_on(text, seconds, monkeypatch):
    monkeypatch.delenv(checkpoints.INTERVAL_VARIABLE, raising=False)
    assert checkpoints.read_interval() == 300, "at most five minutes of work are lost"
    monkeypatch.setenv(checkpoints.INTERVAL_VARIABLE, text)
    if seconds is None:
        with pytest.raises(ValueError, match=checkpoints.INTERVAL_VARIABLE):
            checkpoints.read_interval()
    else:
        assert checkpoints.read_interval() == seconds


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def read(path):
    return {row.index: row.metrics for row in journal.read_rows(path)}


def write_rows(path, metrics):
    with journal.writing(path) as log:
        for index, row in metrics.items():
            log(index, row)


def test_a_row_is_on_disk_at_once_with_nan_and_its_copy_has_no_times(path, tmp_path):
    with journal.writing(path) as log:
        log(0, {"time/step": 0.1, "loss": math.nan, "timely": 2})
        assert math.isnan(read(path)[0]["loss"])
    journal.copy_without_times(path, tmp_path / "copy")
    row = json.loads((tmp_path / "copy").read_text())
    assert str(row) == str({"index": 0, "metrics": {"loss": math.nan, "timely": 2.0}})


@pytest.mark.parametrize("again", [{}, {0: {"loss": 2.0}}], ids=["no row", "a row"])
def test_rows_of_an_earlier_attempt_go_unless_it_goes_on(again, path):
    write_rows(path, {0: {"loss": 1.0}, 1: {"loss": 1.0}})
    write_rows(path, again)
    assert read(path) == again
    write_rows(path, {0: {"loss": 1.0}, 1: {"loss": 1.0}})
    length = path.read_bytes().index(b"\n") + 1
    with journal.writing(path) as log:
        log.go_on(length)
        log(1, {"loss": 2.0})
    assert read(path) == {0: {"loss": 1.0}, 1: {"loss": 2.0}}


def test_a_last_line_torn_by_a_kill_is_left_out_and_a_broken_one_before_it_is_named(path):
    row = '{"index": 0, "metrics": {"a": 1.0}, "time": 1.0}\n'
    path.write_text(f'{row}{{"index": 1, "met')
    assert read(path) == {0: {"a": 1.0}}
    path.write_text(f'{{"index"\n{row}')
    with pytest.raises(ValueError, match="line 1"):
        read(path)


def test_a_row_for_which_there_is_no_room_is_an_error_and_no_part_of_it_stays(path):
    program = """
import resource, sys
from pathlib import Path
from stages.runtime import journal
with journal.writing(Path(sys.argv[1])) as log:
    for index in range(3):
        free = 100 if index == 1 else resource.RLIM_INFINITY  # a row and a half
        resource.setrlimit(resource.RLIMIT_FSIZE, (free, resource.RLIM_INFINITY))
        try:
            log(index, {"loss": 1.0})
        except OSError as error:
            print(index, error.errno)
"""
    output = subprocess.check_output([sys.executable, "-c", program, str(path)], text=True)
    assert output == "1 28\n"
    assert list(read(path)) == [0, 2]
