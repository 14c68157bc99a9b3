import gzip
import json
import re

import pytest

from stages.records.problems import BadRow
from stages.sources import raw_rows


def test_an_array_and_lines_give_the_same_rows(tmp_path):
    rows = [{"a": 1}, {"a": "é"}]
    (tmp_path / "rows.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    (tmp_path / "rows.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    for path in tmp_path.iterdir():
        assert list(raw_rows.read(path)) == [(1, rows[0]), (2, rows[1])]


def test_an_element_that_is_no_object_spoils_only_itself(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('[{"a": 1}, 3, {"a": 2}]', encoding="utf-8")
    first, bad, last = (row for _, row in raw_rows.read(path))
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
def test_a_file_that_cannot_be_read_is_named_in_the_error(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        list(raw_rows.read(path))
