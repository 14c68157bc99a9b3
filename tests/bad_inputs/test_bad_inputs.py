"""Each bad input of the tables gets the message in `told/`, word by word, and nothing is lost.

`told/<kind>.txt` is the table: what is put in, and under it all that its user reads, or that it
works. After a change of a message: `PYTHONPATH=.:tests python -m bad_inputs`, and read the diff.
"""

from pathlib import Path

import pytest
from bad_inputs import meeting
from bad_inputs.meeting import KINDS, OLD, WORKS

CASES = [(name, case) for name, kind in KINDS.items() for case in kind.cases]
JARGON = (
    "Traceback",
    "Input should",
    "pydantic",
    "validation error",
    "Errno",
    "NoneType",
)


@pytest.fixture(scope="module", autouse=True)
def modules():
    with meeting.entry_points():
        yield


@pytest.fixture(scope="module")
def expected():
    return {name: meeting.expected(name) for name in KINDS}


@pytest.mark.parametrize(("name", "case"), CASES, ids=lambda one: getattr(one, "given", one))
def test_it_is_told_and_nothing_is_lost(name, case, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    meeting.put_in(KINDS[name], case)
    found = meeting.told(KINDS[name])
    assert found == expected[name][case.given]
    if found != WORKS:
        for one in OLD:
            assert Path(one).read_text(encoding="utf-8") == f"{one} as it was\n"


def test_the_tables_hold_each_case_once_and_at_least_100_are_refused(expected):
    for name, kind in KINDS.items():
        assert list(expected[name]) == [case.given for case in kind.cases]
    told = [message for table in expected.values() for message in table.values()]
    refused = [message for message in told if message != WORKS]
    assert len(refused) >= 100
    assert [one for one in refused if any(word in one for word in JARGON)] == []
    assert max(map(len, refused)) < 1000
