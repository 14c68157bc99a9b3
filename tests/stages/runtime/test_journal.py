"""Journal rows: on disk at once, whole lines only."""

import math
import subprocess
import sys

import pytest

from stages.runtime import journal


def test_a_row_is_on_disk_before_the_next_line_of_code(tmp_path):
    path = tmp_path / "journal.jsonl"
    with journal.writing(path) as log:
        log(0, {"loss": 1})
        (row,) = journal.read_rows(path)
    assert (row.index, row.metrics) == (0, {"loss": 1.0})


def test_an_earlier_attempts_rows_are_dropped(tmp_path):
    path = tmp_path / "journal.jsonl"
    for value in (1, 2):
        with journal.writing(path) as log:
            log(0, {"loss": value})
    assert [row.metrics["loss"] for row in journal.read_rows(path)] == [2]


def test_a_last_line_torn_by_a_kill_is_left_out(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"index": 0, "metrics": {"a": 1.0}, "time": 1.0}\n{"index": 1, "met')
    assert [row.index for row in journal.read_rows(path)] == [0]


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"index"\n{"index": 0, "metrics": {}, "time": 1.0}\n')
    with pytest.raises(ValueError, match="line 1"):
        list(journal.read_rows(path))


def test_a_row_for_which_there_is_no_room_is_an_error_and_no_part_of_it_stays(tmp_path):
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
            print(index, error.strerror)
"""
    path = tmp_path / "journal.jsonl"
    output = subprocess.check_output([sys.executable, "-c", program, str(path)], text=True)
    assert output == "1 no room for a row\n"
    assert [row.index for row in journal.read_rows(path)] == [0, 2]


def test_not_a_number_survives(tmp_path):
    path = tmp_path / "journal.jsonl"
    with journal.writing(path) as log:
        log(0, {"loss": math.nan})
    (row,) = journal.read_rows(path)
    assert math.isnan(row.metrics["loss"])
