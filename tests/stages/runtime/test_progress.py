"""Progress of a seed run: counts, time left, numbers, and how often a log has a line."""

import pytest
from seed_runs import make_run

from stages import meter
from stages.loops.work import Step
from stages.runtime import journal, progress, terminal
from stages.runtime.progress import Display, Progress, Snapshot


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def run(tmp_path):
    with journal.writing(tmp_path / "journal.jsonl") as log:
        yield make_run(folder=tmp_path, log=log)


def test_the_time_left_after_a_resume_follows_from_the_rate_of_this_process(clock):
    # 1082 of 2324 steps took a process of yesterday, the 10 since then 5 s
    progress = Progress()
    progress.begin("", unit="steps", total=2324, done=1082)
    assert progress.snapshot().seconds_left is None
    clock.now += 5
    progress.advance(1092)
    assert progress.snapshot().seconds_left == pytest.approx((2324 - 1092) * 0.5)
    assert progress.snapshot().describe() == "1,092/2,324 steps  10 min left"


def test_parts_that_a_killed_attempt_left_take_no_time(run, clock):
    def work(first, *, last=8):
        for number in range(first, last):
            clock.now += 2
            yield number

    def kill(first):
        yield from work(first, last=5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run.track(run.keep_parts("a", kill), total=8))
    parts = run.track(run.keep_parts("a", work), total=8)
    left = [run.progress.snapshot().seconds_left for _ in parts]
    assert left[5:] == [4, 2, 0]


def test_what_is_counted_within_an_item_moves_the_line_and_never_beyond_the_total(run, clock):
    meter.COUNTS.clear()
    items = run.track(["a", "b"], unit="completions", sizes=[6, 4])
    assert run.progress.snapshot() == Snapshot()
    next(items)
    assert (run.progress.snapshot().done, run.progress.snapshot().total) == (6, 10)
    meter.COUNTS.update(completions=3, tokens=70)
    clock.now += 7
    snapshot = run.progress.snapshot()
    assert (snapshot.done, snapshot.seconds_left) == (9, pytest.approx(7 / 9))
    assert snapshot.describe() == "9/10 completions, 70 tokens  1 s left"
    meter.COUNTS["completions"] += 50
    assert run.progress.snapshot().done == 10
    assert list(items) == ["b"]
    assert run.progress.snapshot().within == {}


def test_numbers_of_the_last_steps_are_averaged(run):
    steps = [Step(index=i, metrics={"loss/nll": float(i), "loss/other": 9.0}) for i in range(100)]
    shown = [run.progress.snapshot().numbers for _ in run.track(steps, total=100)]
    assert shown[0] == {"loss": 0.0}
    assert shown[12] == {"loss": 11.5}  # of the last 2 = 1 + 13 // 10
    assert shown[-1] == {"loss": 94.5}  # of the last 10


def test_a_log_has_fewer_lines_the_longer_a_stage_takes(clock, monkeypatch):
    lines = []
    monkeypatch.setattr(terminal, "write", lines.append)
    display = Display("train@x", "lines")
    times = []
    for _ in range(24 * 3600):
        clock.now += 1
        display.update(0, Snapshot(done=1, total=4, unit="steps", numbers={"right": 0.5}))
        if len(lines) > len(times):
            times.append(clock.now - 1000)
    assert times[:4] == [15, 30, 45, 60]
    assert [sum(time <= 60 * minutes for time in times) for minutes in (5, 60, 1440)] == [
        16,
        40,
        316,
    ]
    assert lines[0][8:] == " train@x  seed 0  1/4 steps  right 50.0 %"


def test_the_last_line_has_the_mean_over_seeds(monkeypatch):
    lines = []
    monkeypatch.setattr(terminal, "write", lines.append)
    display = Display("evaluate@x", "lines")
    for seed, share in enumerate((0.5, 0.75)):
        display.update(seed, Snapshot(label="test", done=4, total=4, numbers={"right": share}))
    display.end()
    assert lines == ["evaluate@x  done in 0 s  test: right 62.5 %"]


def test_times_are_short():
    seconds = (0.4, 89.0, 90.0, 5300.0, 5400.0, 90000.0)
    words = [progress.describe_seconds(value) for value in seconds]
    assert words == ["0 s", "89 s", "2 min", "88 min", "1 h 30 min", "25 h 0 min"]


def test_before_any_part_has_begun_what_is_counted_moves(clock, run):
    assert run.progress.snapshot().describe() == "starts"
    meter.COUNTS.update(rows=1200)
    clock.now += 7
    assert run.progress.snapshot().describe() == "1,200 rows"
