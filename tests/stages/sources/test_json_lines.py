import json

import pytest

from stages.records.problems import BadRow, Problem
from stages.sources import json_lines

ROW = {"question": " 2+2? ", "answer": "4"}


@pytest.fixture
def read(tmp_path):
    def read(*rows: dict[str, object]) -> list[Problem | BadRow]:
        path = tmp_path / "mine.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        config = json_lines.Config(kind="json_lines", path=str(path), licence="CC0-1.0")
        return list(json_lines.problems(config))

    return read


def test_every_field_is_read(read):
    row = {"id": 7, "question": "2+2?", "answer": 4, "solution": "2+2=4\n#### 4", "split": "test"}
    assert read(row) == [
        Problem(
            id="7",
            question="2+2?",
            answer="4",
            solution="2+2=4\n#### 4",
            split="test",
            line=1,
        )
    ]


def test_what_is_optional_may_be_missing_or_null(read):
    expected = Problem(
        id="mine-000001", question="2+2?", answer="4", solution=None, split=None, line=1
    )
    assert read(ROW) == [expected]
    assert read(ROW | {"id": None, "solution": None, "split": None, "other": 1}) == [expected]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": ""}, "empty question"),
        ({"question": "  \n"}, "empty question"),
        ({"question": None}, "empty question"),
        ({"question": 3}, "wrong type"),
        ({"question": "\ud800"}, "not Unicode"),
        ({"answer": float("nan")}, "not a number"),
        ({"answer": float("inf")}, "not a number"),
        ({"answer": True}, "wrong type"),
        ({"answer": [4]}, "wrong type"),
        ({"answer": ""}, "empty answer"),
        ({"answer": 10**4000}, "answer does not parse"),
        ({"solution": 4}, "wrong type"),
        ({"split": "dev"}, "unknown split"),
        ({"id": 1.5}, "wrong type"),
    ],
)
def test_a_bad_field_is_quarantined_with_its_line_and_reason(read, change, reason):
    good, bad = read(ROW, ROW | change)
    assert isinstance(good, Problem)
    assert isinstance(bad, BadRow)
    assert (bad.file, bad.line) == ("mine.jsonl", 2)
    assert bad.reason.partition(":")[0] == reason


@pytest.mark.parametrize("column", ["question", "answer"])
def test_a_missing_column_is_named_with_those_that_are_there(read, column):
    (bad,) = read({key: value for key, value in ROW.items() if key != column})
    assert isinstance(bad, BadRow)
    other = "answer" if column == "question" else "question"
    assert bad.reason == (f"missing column: '{column}' is not among the row's columns ({other})")
