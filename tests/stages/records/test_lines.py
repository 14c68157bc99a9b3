import dataclasses
import json

import pytest
from judged_rows import completion

from stages.records import lines
from stages.records.pools import Completion, Score

ROWS = [
    Score(id="a", index=0, scores={"b": 0.1 + 0.2, "a": 1.0}, disagreement={}, steps={"b": [0.5]}),
    Score(id="é\u2028\n漢", index=1, scores={}, disagreement={"a": -1e-300}, steps={}),
]


def test_rows_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    assert lines.write_lines(path, ROWS) == 2
    assert list(lines.read_lines(path, Score)) == ROWS


def test_a_row_is_one_line_of_json_with_sorted_keys_in_utf8(tmp_path):
    path = tmp_path / "rows.jsonl"
    lines.write_lines(path, ROWS)
    raw = path.read_bytes().split(b"\n")
    assert len(raw) == 3
    assert list(json.loads(raw[0])) == ["disagreement", "id", "index", "scores", "steps"]
    assert "漢".encode() in raw[1]


def test_no_row_makes_an_empty_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert lines.write_lines(path, []) == 0
    assert list(lines.read_lines(path, Score)) == []


@pytest.mark.parametrize(
    "line", ['{"id": "a"}', '{"id": "a", "index": 0, "score": 1, "x": 2}', "{", "[1]", "3"]
)
def test_a_row_of_another_kind_is_refused_with_file_and_line(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    lines.write_lines(path, ROWS[:1])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: expected a Score row"):
        list(lines.read_lines(path, Score))


def test_lists_of_token_ids_survive(tmp_path):
    row = dataclasses.replace(completion("x", ids=[1, 2]), logprob_sum=-1.5, seed=2**62)
    lines.write_lines(tmp_path / "rows.jsonl", [row])
    assert list(lines.read_lines(tmp_path / "rows.jsonl", Completion)) == [row]
