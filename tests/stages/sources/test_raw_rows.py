import gzip
import json
import re
from pathlib import Path

import pytest

from stages.records.problems import BadRow
from stages.sources import raw_rows


def reasons(path: Path) -> list[tuple[int, str]]:
    return [
        (line, row.reason) for line, row in raw_rows.read_lines(path) if isinstance(row, BadRow)
    ]


def test_good_lines_come_with_their_numbers_and_blank_ones_are_skipped(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n{"a": "\xc3\xa9"}')
    assert list(raw_rows.read_lines(path)) == [(1, {"a": 1}), (3, {"a": "é"})]


def test_a_bad_line_spoils_only_itself(tmp_path):
    path = tmp_path / "rows.jsonl"
    long = b'{"a": "' + b"x" * raw_rows.MAX_LINE_BYTES + b'"}'
    deep = b"[" * 100_000
    lines = [b'{"a": 1}', b'{"a": "\xff"}', b"{oops", b"[1]", long, deep, b'{"a": 2}']
    path.write_bytes(b"\n".join(lines))
    good = [(line, row) for line, row in raw_rows.read_lines(path) if isinstance(row, dict)]
    assert good == [(1, {"a": 1}), (7, {"a": 2})]
    found = reasons(path)
    assert [line for line, _ in found] == [2, 3, 4, 5, 6]
    assert found[0][1] == "not UTF-8: byte 8 of the line is 0xff"
    assert found[1][1].startswith("not JSON: ")
    assert found[2][1].startswith("not an object: expected {...}, found list (a file that is one")
    assert found[3][1].startswith("over-long row: more than ")
    assert found[4][1].startswith("not JSON: ")


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.jsonl"])
def test_gzip_is_read_by_its_first_bytes(tmp_path, name):
    path = tmp_path / name
    for content in (gzip.compress(b'{"a": 1}\n'), b'{"a": 1}\n'):
        path.write_bytes(content)
        assert list(raw_rows.read_lines(path)) == [(1, {"a": 1})]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", None, "found none"),
        ("rows.jsonl", b"", "the file is empty"),
        ("rows.jsonl", b"\n \n", "the file is empty"),
        ("rows.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 99, mtime=0)[:-9], "expected a whole gzip"),
    ],
)
def test_raw_lines_a_file_that_cannot_be_read_is_named_in_the_error(
    tmp_path, name, content, message
):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        list(raw_rows.read_lines(path))


def test_an_array_and_lines_give_the_same_rows(tmp_path):
    rows = [{"a": 1}, {"a": "é"}]
    (tmp_path / "rows.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    (tmp_path / "rows.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    for path in tmp_path.iterdir():
        assert list(raw_rows.read_rows(path)) == [(1, rows[0]), (2, rows[1])]


def test_an_element_that_is_no_object_spoils_only_itself(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('[{"a": 1}, 3, {"a": 2}]', encoding="utf-8")
    first, bad, last = (row for _, row in raw_rows.read_rows(path))
    assert (first, last) == ({"a": 1}, {"a": 2})
    assert isinstance(bad, BadRow)
    assert (bad.line, bad.reason) == (2, "not an object: expected {...}, found int")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.json", None, "found none"),
        ("rows.json", b"[]", "found an empty array"),
        ("rows.json", b'{"a": 1}', "found dict"),
        ("rows.json", b'{"a": 1}\n{"a": 2}', "or give it the ending .jsonl"),
        ("rows.json", b"\xff", "expected a JSON array"),
        ("rows.json.gz", b"[]", "expected a JSON array"),
        ("rows.json.gz", gzip.compress(b'[{"a": 1}]' * 99, mtime=0)[:-9], "expected a JSON array"),
    ],
)
def test_raw_rows_a_file_that_cannot_be_read_is_named_in_the_error(
    tmp_path, name, content, message
):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        list(raw_rows.read_rows(path))
