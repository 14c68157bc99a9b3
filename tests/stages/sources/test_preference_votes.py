import json
from typing import Any

import pytest

from stages.records.preferences import RawLabelled, RawPreference
from stages.records.problems import BadRow
from stages.sources import preference_files
from stages.sources.preference_files import PairColumns


@pytest.fixture
def read(tmp_path):
    def read(*rows: dict[str, Any], **columns: str) -> list[Any]:
        path = tmp_path / "f.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return list(preference_files.read_preferences(path, PairColumns(**columns)))

    return read


def prefer(chosen: str, rejected: str, **more: Any) -> dict[str, Any]:
    return {"prompt": "Why?", "chosen": chosen, "rejected": rejected, **more}


XY, YX = prefer("x", "y"), prefer("y", "x")


def shares(rows: list[Any]) -> list[tuple[str, str, float]]:
    pairs = [row for row in rows if isinstance(row, RawPreference)]
    return [(row.chosen, row.rejected, row.probability) for row in pairs]


def kinds(rows: list[Any]) -> dict[int, str]:
    return {row.line: row.reason.partition(":")[0] for row in rows if isinstance(row, BadRow)}


def test_a_row_that_stands_again_is_repeated(read):
    other = prefer("x", "z")
    rows = read(XY, other, XY, prefer("x", "y", prompt="How?"), XY)
    assert len(shares(rows)) == 3
    assert kinds(rows) == {3: "repeated", 5: "repeated"}
    assert rows[2].reason == "repeated: the same row as line 1 of f.jsonl"
    assert json.loads(rows[2].content) == XY


def test_people_who_agree_are_one_pair(read):
    rows = read(*(XY | {"judge": judge} for judge in "abc"))
    assert shares(rows) == [("x", "y", 1.0)]
    assert kinds(rows) == {2: "merged", 3: "merged"}
    assert rows[1].reason == (
        "merged: the same two answers as in line 1 of f.jsonl, whose label is the share of 3 votes"
    )


def test_people_who_disagree_are_one_pair_with_their_share(read):
    rows = read(XY, YX | {"chosen": " y "}, YX, YX, prefer("x", "z"))
    assert shares(rows) == [("y", "x", 0.75), ("x", "z", 1.0)]
    assert kinds(rows) == {2: "merged", 3: "merged", 4: "merged"}


def test_even_votes_are_a_tie_of_each_row(read):
    rows = read(XY, YX, prefer("x", "z"))
    assert shares(rows) == [("x", "z", 1.0)]
    assert kinds(rows) == {1: "tie", 2: "tie"}


def test_soft_labels_of_the_same_answers_are_averaged(read):
    rows = read(XY | {"probability": 0.9}, YX | {"probability": 0.7})
    assert shares(rows) == [("x", "y", 0.6)]
    assert kinds(read(XY | {"probability": 0.7}, YX | {"probability": 0.7})) == {1: "tie", 2: "tie"}


def test_who_prefers_neither_is_half_a_vote_for_each(read):
    names = {"prompt": "prompt", "a": "a", "b": "b", "winner": "winner"}
    row = {"prompt": "Why?", "a": "x", "b": "y"}
    rows = read(*(row | {"winner": winner} for winner in ("tie", "a", "a", "tie")), **names)
    assert shares(rows) == [("x", "y", 0.75)]
    assert kinds(rows) == {1: "merged", 3: "merged", 4: "merged"}
    rows = read(*(row | {"winner": winner} for winner in ("tie", "a", "b")), **names)
    assert kinds(rows) == {1: "tie", 2: "tie", 3: "tie"}
    rows = read(row | {"winner": "tie"}, row | {"winner": "tie", "judge": 2}, **names)
    assert [row.reason for row in rows] == ["tie: 'winner' prefers neither answer"] * 2


def test_other_prompts_and_systems_are_other_votes(read):
    rows = read(XY, YX | {"prompt": "How?"}, YX | {"system": "Be brief."})
    assert shares(rows) == [("x", "y", 1.0), ("y", "x", 1.0), ("y", "x", 1.0)]


def test_a_list_is_merged_pair_by_pair(read):
    lists = [{"prompt": "Why?", "responses": ["x", "y", "z"], "scores": scores}
             for scores in ([3, 2, 1], [2, 3, 1])]  # fmt: skip
    rows = read(*lists)
    assert shares(rows) == [("x", "z", 1.0), ("y", "z", 1.0)]
    assert kinds(rows) == {2: "merged"}
    assert kinds(read(lists[0], lists[0])) == {2: "repeated"}
    (tie,) = {*kinds(read(*({**row, "responses": ["x", "y"], "scores": row["scores"][:2]}
                            for row in lists))).values()}  # fmt: skip
    assert tie == "tie"


def test_completions_are_repeated_and_keep_both_labels(read):
    good = {"prompt": "Why?", "completion": "x", "label": True}
    rows = read(good, good | {"completion": "y"}, good)
    assert kinds(rows) == {3: "repeated"}
    rows = read(good, good | {"label": False}, good, good | {"user": 4})
    assert [row.desirable for row in rows if isinstance(row, RawLabelled)] == [
        True, False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("row", [{"judge": 1}, {}])
def test_many_rows_about_the_same_answers_take_no_quadratic_time(read, row, monkeypatch):
    """Each row's content is compared as a key, not with that of every other row."""
    calls = 0
    dumps = json.dumps

    def count(*args: Any, **kwargs: Any) -> str:
        nonlocal calls
        calls += 1
        return dumps(*args, **kwargs)

    rows = [XY | row, YX | row] * 300
    monkeypatch.setattr("stages.sources.preference_votes.json.dumps", count)
    assert set(kinds(read(*rows, XY | row)).values()) == {"merged"}
    assert calls < 4 * len(rows)
