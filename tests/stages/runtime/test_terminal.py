"""What a person sees of a stage: on a terminal of any width, and in a log."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from terminals import list_texts, run_on_terminal

from stages.runtime import terminal

ROOT = Path(__file__).parents[3]
PROGRAM = """
import logging, sys, time
from seed_runs import make_run
from stages.loops.work import Step
from stages.runtime import process, runs, seeds

METRICS = {"reward/mean": 0.71, "kl/sequence": 0.0123, "length/mean": 24.0, "unseen": 1.0}
METRICS["length/truncated"] = 0.25

def work(run):
    steps = (Step(index=i, metrics=METRICS) for i in range(5))
    for step in run.track(steps, total=5, unit="steps"):
        if run.seed == 1 and step.index == 2:
            logging.getLogger("of").warning("a \\x1b[2Jmodel")
            for text in ("\\rShards: 0%", "\\rShards: 100%", "\\n"):
                sys.stderr.write(text)
        time.sleep(0.8)

def main():
    with runs.start("train@a-row-with-a-name") as run:
        seeds.for_each(work, make_run, [0, 1], run)
    open("ended", "w").close()

process.run(main)
"""
DONE = (
    r"train@a-row-with-a-name  done in \d+ s  reward 0.71  KL 0.0123  length 24  truncated 25.0 %"
)
COMMAND = [sys.executable, "-c", PROGRAM]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 120])
def test_a_line_a_seed_is_drawn_again_within_the_width_and_one_line_remains(tmp_path, columns):
    written = run_on_terminal(COMMAND, tmp_path, columns, ENVIRONMENT)
    texts = list_texts(written)
    seeds = [text for text in texts if text.startswith("  seed ")]
    assert {text[:8] for text in seeds} == {"  seed 0", "  seed 1"}
    assert max(map(len, seeds)) == min(
        columns - 1,
        len("  seed 0  5/5 steps  2 s left  reward 0.71  KL 0.0123  length 24  truncated 25.0 %"),
    )
    assert len({text.split()[2] for text in seeds if text.startswith("  seed 0")}) > 1, "it moves"
    # all that is drawn is erased, and the last line stays
    name, rest = list_texts(written[written.rindex("\x1b[J") :])[:2]
    assert re.fullmatch(DONE, name + rest)
    # what a model wrote and what a library draws is shown, not obeyed, and erases the lines first
    assert any(text.endswith(" of: a \\x1b[2Jmodel") for text in texts)
    assert "\x1b[2J" not in written
    assert "\\r" not in written
    assert "Shards" not in written


def as_by_dvc(*options):
    """A command that starts the stage as `dvc repro` with these options does."""
    start = "import subprocess, sys; subprocess.run(sys.argv[2:][sys.argv[2:].index('--') + 1:])"
    return [sys.executable, "-c", start, "dvc", *options, "--", *COMMAND]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-q",)])
def test_in_a_log_there_are_plain_lines_and_only_warnings_of_a_quiet_run(tmp_path, options):
    environment = os.environ | ENVIRONMENT | {"DVC_STAGE": "train@another"}
    ended = subprocess.run(
        as_by_dvc(*options), cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    warning, *others = ended.stderr.splitlines()
    assert warning[9:] == "of: a \\x1b[2Jmodel"
    assert [bool(re.fullmatch(DONE, line)) for line in others] == ([] if options else [True])


@pytest.mark.slow
def test_a_terminal_that_can_draw_nothing_has_the_lines_of_a_log(tmp_path):
    written = run_on_terminal(COMMAND, tmp_path, 80, ENVIRONMENT | {"TERM": "dumb"})
    warning, done, *rest = written.split("\r\n")
    assert warning[9:] == "of: a \\x1b[2Jmodel"
    assert re.fullmatch(DONE, done)
    assert rest == ["\x1b[0m"], "what colorama, which DVC imports, writes at the end"


def test_colour_is_left_out_where_it_is_not_wanted(monkeypatch):
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert terminal.green("a") == "\x1b[32ma\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.green("a") == "a"


@pytest.mark.slow
def test_a_terminal_that_is_gone_ends_no_stage(tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        COMMAND, cwd=tmp_path, env=os.environ | ENVIRONMENT,
        stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    os.read(ours, 1)
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert (tmp_path / "ended").exists()


@pytest.mark.slow
def test_a_stage_that_fails_leaves_no_line_that_it_drew(tmp_path):
    fails = PROGRAM.replace("time.sleep(0.8)", "time.sleep(0.6); 1 / (3 - step.index)")
    command = [sys.executable, "-c", fails]
    written = run_on_terminal(command, tmp_path, 80, ENVIRONMENT, status=1)
    drawn = written.rindex("  seed ")
    assert "\r\x1b[J\r" in written[drawn:]
    assert "ZeroDivisionError" in written[written.rindex("\r\x1b[J\r") :]


def test_only_a_bar_is_taken_for_a_bar(tmp_path):
    """A text that ends its line is no bar, and those after it are shown."""
    path = tmp_path / "shown.txt"
    with path.open("w") as stream:
        terminal.escape_output(stream)
        for text in ("\rHalf: 50%", "\rError: out of room\n", "next\n"):
            stream.write(text)
    shown = path.read_text()
    assert "Error: out of room" in shown
    assert shown.endswith("next\n")
    assert "Half" not in shown
