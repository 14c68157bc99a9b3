"""Each bad input is refused by the key, file or row that is wrong, and nothing is lost.

`refusals.yaml` is the table: what is put in -> what the message must name, with the word that may
be meant; or that it works.
"""

from pathlib import Path

import pytest
from bad_inputs import meeting
from bad_inputs.meeting import KINDS, OLD, WORKS

CASES = [(name, case) for name, kind in KINDS.items() for case in kind.cases]
PLANNED = ("parameters", "table_rows")
"""Kinds whose refusals have a line for each mistake."""
JARGON = ("Traceback", "Input should", "pydantic", "validation error", "Errno", "NoneType")


@pytest.fixture(scope="module", autouse=True)
def modules():
    with meeting.entry_points():
        yield


@pytest.fixture(scope="module")
def expected():
    return meeting.expected()


@pytest.mark.parametrize(("name", "case"), CASES, ids=lambda one: getattr(one, "given", one))
def test_it_is_refused_by_name_and_nothing_is_lost(name, case, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    meeting.put_in(KINDS[name], case)
    before = {path for path in Path().rglob("*") if path.is_file()}
    message, named = meeting.told(KINDS[name]), expected[name][case.given]
    if named == WORKS:
        assert message == WORKS
        return
    assert [text for text in named if text not in message] == [], message
    assert [word for word in JARGON if word in message] == []
    assert len(message) < 1000
    if name in PLANNED:
        mistakes = [text for text in named if not text.startswith("did you mean")]
        assert len(message.splitlines()) == (1 if "YAML" in message else len(mistakes)), message
    for path in OLD:
        assert Path(path).read_text(encoding="utf-8") == meeting.earlier_content(path)
    written = {path for path in Path().rglob("*") if path.is_file()} - before
    assert [path for path in written if path.parts[0] == "data" and "runs" not in path.parts] == []


def test_the_table_holds_each_case_once_and_at_least_100_are_refused(expected):
    for name, kind in KINDS.items():
        assert list(expected[name]) == [case.given for case in kind.cases]
    refused = [named for table in expected.values() for named in table.values() if named != WORKS]
    assert len(refused) >= 100
    assert [named for named in refused if not named] == []
