"""What a person sees of a stage: progress by hand; on a terminal of any width, and in a log."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from seed_runs import make_run
from terminals import list_texts, run_on_terminal

from stages import meter
from stages.runtime import journal, progress, terminal
from stages.runtime.progress import Progress

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def run(tmp_path):
    meter.COUNTS.clear()
    with journal.writing(tmp_path / "journal.jsonl") as log:
        yield make_run(folder=tmp_path, log=log)


def test_the_time_that_remains_after_a_resume_follows_from_the_rate_of_this_process(clock):
    # 1082 of 2324 steps took a process of yesterday, the 10 since then 5 s
    progress = Progress()
    progress.begin("", unit="steps", total=2324, done=1082)
    assert progress.snapshot().seconds_left is None
    clock.now += 5
    progress.advance(1092)
    assert progress.snapshot().seconds_left == pytest.approx((2324 - 1092) * 0.5)
    assert progress.snapshot().describe() == "1,092/2,324 steps  10 min left"


def test_the_time_that_remains_is_that_of_all_parts(clock):
    progress = Progress()
    progress.begin("dev", unit="completions", total=4, after=8)
    clock.now += 2
    progress.advance(2)
    assert progress.snapshot().seconds_left == 2 + 8
    clock.now += 2
    progress.advance(4)
    progress.begin("test", unit="completions", total=8, after=0)
    assert progress.snapshot().seconds_left == 8, "at the rate of the part before"


def test_what_is_counted_within_an_item_moves_the_line_and_never_beyond_the_total(run, clock):
    items = run.track(["a", "b"], unit="completions", sizes=[6, 4])
    next(items)
    meter.COUNTS.update(completions=3, tokens=70)
    clock.now += 7
    assert run.progress.snapshot().describe() == "9/10 completions, 70 tokens  1 s left"
    meter.COUNTS["completions"] += 50
    assert run.progress.snapshot().done == 10


def test_a_log_has_lines_less_and_less_often_and_the_last_has_the_headline(clock, monkeypatch):
    lines, times = [], []
    monkeypatch.setattr(terminal, "write", lines.append)
    display = progress.Display("evaluate@x", "lines")
    for second in range(1, 3601):
        clock.now += 1
        display.update(0, progress.Snapshot(done=1, total=4, unit="steps"))
        times += [second] * (len(lines) - len(times))
    assert (times[:3], len(times)) == ([15, 30, 45], 40)
    assert lines[0][8:] == " evaluate@x  seed 0  1/4 steps"
    display.headline = {"dev_accuracy": 0.25, "generated_tokens": 41_000.0}
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    for colour, name in (("", "\x1b[32mevaluate@x\x1b[0m"), ("1", "evaluate@x")):
        monkeypatch.setenv("NO_COLOR", colour)
        display.end()
        numbers = "dev accuracy 25.0 %  generated tokens 41,000"
        assert lines[-1] == f"{name}  done in 60 min  {numbers}"


@pytest.mark.parametrize(("columns", "rows"), [(40, 24), (20, 4)])
def test_drawn_lines_neither_wrap_nor_go_below_the_screen(columns, rows, monkeypatch):
    written = []
    monkeypatch.setattr(terminal.os, "get_terminal_size", lambda _: (columns, rows))
    monkeypatch.setattr(terminal.os, "write", lambda _, text: written.append(text.decode()))
    terminal.draw([f"  seed {n}  a b  \x1b[2J{'x' * 99}" for n in range(4)] + ["x" * 99])
    texts = list_texts(written[0])
    assert texts[0] == "  seed 0  a b", "a field is left out whole"
    assert max(map(len, texts)) == (columns - 1 if rows > 5 else 13)
    assert len(texts) == min(5, rows - 1)
    assert "\x1b[2J" not in written[0]
    assert written[0].count(terminal.UP) == len(texts) - 1


PROGRAM = """
import logging, sys, time
from seed_runs import for_each_seed
from stages.loops.work import Step
from stages.runtime import process, runs

METRICS = {"reward/mean": 0.71, "unseen": 1.0, "length/truncated": 0.25}

def work(run):
    steps = (Step(index=i, metrics=METRICS) for i in range(4))
    for step in run.track(steps, total=4, unit="steps"):
        if run.seed == 1 and step.index == 2:
            logging.getLogger("of").warning("a \\x1b[2Jmodel")
            for text in ("\\rShards: 0%", "\\rShards: 100%", "\\n"):
                sys.stderr.write(text)
        time.sleep(0.8)
        END

def main():
    with runs.start("train@row") as run:
        for_each_seed(work, [0, 1], run)
    open("ended", "w").close()

process.run(main)
"""
DONE = r"train@row  done in \d+ s"
COMMAND = [sys.executable, "-c", PROGRAM.replace("END", "")]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}


@pytest.mark.slow
def test_on_a_terminal_a_line_a_seed_moves_and_one_line_remains(tmp_path):
    written = run_on_terminal(COMMAND, tmp_path, 60, ENVIRONMENT)
    texts = list_texts(written)
    seeds = [text for text in texts if text.startswith("  seed ")]
    assert {text[:8] for text in seeds} == {"  seed 0", "  seed 1"}
    assert max(map(len, seeds)) <= 59
    assert len({text.split()[2] for text in seeds if text.startswith("  seed 0")}) > 1
    # all that is drawn is erased, and the last line stays
    assert re.fullmatch(DONE, "".join(list_texts(written[written.rindex("\x1b[J") :])[:2]))
    # what a model wrote and what a library draws is shown, not obeyed, and erases the lines first
    assert any(text.endswith(" of: a \\x1b[2Jmodel") for text in texts)
    assert not {"\x1b[2J", "\\r", "Shards"} & {text for text in ("\x1b[2J", "\\r", "Shards")
                                               if text in written}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("end", "status", "text"), [
    ("1 / (2 - step.index)", 1, "ZeroDivisionError"),
    ("step.index < 2 or os.kill(os.getppid(), signal.SIGINT)", 143, ""),
    pytest.param("step.index < 2 or os.kill(os.getpid(), signal.SIGKILL)", 1, "exited with -9",
                 marks=pytest.mark.weekly),
])  # fmt: skip
def test_a_stage_that_ends_before_its_end_leaves_no_line_that_it_drew(end, status, text, tmp_path):
    program = "import os, signal\n" + PROGRAM.replace("END", end)
    written = run_on_terminal([sys.executable, "-c", program], tmp_path, 80, ENVIRONMENT, status)
    erased = written[written.rindex("  seed ") :].partition("\r\x1b[J")[2]
    assert text in erased
    assert ("Traceback" in erased) == (text == "ZeroDivisionError")
    assert bool(text) == bool(list_texts(erased))


def test_a_stream_that_becomes_a_terminal_is_erased_before_a_text(monkeypatch):
    # as of a fork of the fork server, whose own streams are none
    (_, pipe), (ours, theirs) = os.pipe(), pty.openpty()
    with os.fdopen(pipe, "w") as stream:
        terminal.escape_output(stream)
        os.dup2(theirs, pipe)
        monkeypatch.setattr(terminal, "is_terminal", lambda: True)
        stream.write("saved\n")
    assert os.read(ours, 99) == b"\x1b[Jsaved\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(("options", "environment"), [
    ((), {}), pytest.param(("-q",), {}, marks=pytest.mark.weekly),
    pytest.param((), {"TERM": "dumb"}, marks=pytest.mark.weekly),
])  # fmt: skip
def test_where_nothing_can_be_drawn_there_are_plain_lines(options, environment, tmp_path):
    # as by `dvc repro` with these options
    start = "import subprocess, sys; subprocess.run(sys.argv[sys.argv.index('--') + 1:])"
    command = [sys.executable, "-c", start, "dvc", *options, "--", *COMMAND]
    settings = ENVIRONMENT | {"DVC_STAGE": "train@another"} | environment
    if environment:
        output, _, _ = run_on_terminal(command, tmp_path, 80, settings).rpartition("\r\n")
    else:
        output = subprocess.check_output(
            command, cwd=tmp_path, env=os.environ | settings, stderr=subprocess.STDOUT, text=True
        )
    warning, *shown = output.splitlines()
    assert warning[9:] == "of: a \\x1b[2Jmodel"
    assert len(shown) == (0 if options else 1)
    assert all(re.fullmatch(DONE, line) for line in shown)
