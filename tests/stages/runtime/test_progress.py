"""Progress changes nothing, and says something wherever it runs."""

import logging
from dataclasses import dataclass

from stages.runtime import progress


@dataclass(frozen=True)
class Step:
    index: int
    metrics: dict[str, float]


def test_items_come_through_unchanged(monkeypatch):
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stderr.isatty", lambda answer=is_terminal: answer, raising=False)
        assert list(progress.track(iter(range(5)), total=5, label="count")) == [0, 1, 2, 3, 4]


def test_off_a_terminal_the_first_and_the_last_item_get_a_line(caplog):
    steps = [
        Step(i, {"time/sample": 1.0, "work/policy/read": 9, "loss/policy": 0.5 * i})
        for i in range(20)
    ]
    with caplog.at_level(logging.INFO):
        list(progress.track(steps, label="train_grpo"))
    assert [record.message.strip() for record in caplog.records] == [
        "train_grpo 1/20, 0 s  loss/policy 0",
        "train_grpo 20/20, 0 s  loss/policy 9.5",
    ]


def test_one_item_gets_one_line_and_none_gets_none(caplog):
    with caplog.at_level(logging.INFO):
        list(progress.track([1], label="one"))
        list(progress.track([], label="none"))
    assert [record.message.strip() for record in caplog.records] == ["one 1/1, 0 s"]


def test_between_them_a_line_every_ten_seconds(caplog, monkeypatch):
    now = iter(range(0, 10_000, 3))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))
    with caplog.at_level(logging.INFO):
        list(progress.track(range(30), label="slow"))
    assert 3 < len(caplog.records) < 30


def test_tracks_nest(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    pairs = [
        (outer, inner)
        for outer in progress.track(range(2), label="outer")
        for inner in progress.track(range(2), label="inner")
    ]
    assert pairs == [(0, 0), (0, 1), (1, 0), (1, 1)]
