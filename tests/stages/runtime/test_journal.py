"""Journal rows: on disk at once, whole lines only."""

import math

import pytest

from stages.runtime import journal


def test_a_row_is_on_disk_before_the_next_line_of_code(tmp_path):
    path = tmp_path / "journal.jsonl"
    with journal.writing(path) as log:
        log(0, {"loss": 1})
        (row,) = journal.read(path)
    assert (row.index, row.metrics) == (0, {"loss": 1.0})


def test_an_earlier_attempts_rows_are_dropped(tmp_path):
    path = tmp_path / "journal.jsonl"
    for value in (1, 2):
        with journal.writing(path) as log:
            log(0, {"loss": value})
    assert [row.metrics["loss"] for row in journal.read(path)] == [2]


def test_a_last_line_torn_by_a_kill_is_left_out(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"index": 0, "metrics": {"a": 1.0}, "time": 1.0}\n{"index": 1, "met')
    assert [row.index for row in journal.read(path)] == [0]


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"index"\n{"index": 0, "metrics": {}, "time": 1.0}\n')
    with pytest.raises(ValueError, match="line 1"):
        list(journal.read(path))


def test_not_a_number_survives(tmp_path):
    path = tmp_path / "journal.jsonl"
    with journal.writing(path) as log:
        log(0, {"loss": math.nan})
    (row,) = journal.read(path)
    assert math.isnan(row.metrics["loss"])
