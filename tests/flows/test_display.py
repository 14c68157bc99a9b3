"""What a person sees of several stages at once, on a terminal and in a log."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from terminals import list_texts, run_on_terminal
from toy_repo import make_toy_repo

from flows.display import StageLines
from flows.execute import Result, StageOutcome
from flows.process import Runner


@pytest.mark.slow
def test_stages_on_a_terminal_have_a_line_a_seed_and_leave_one_line_each(tmp_path: Path) -> None:
    repo = make_toy_repo(tmp_path / "toy")
    command = [sys.executable, "-m", "flows.local", "-j", "2", "compare"]
    written = run_on_terminal(
        command, repo.path, 60, repo.environment | {"COLUMNS": "60", "TOY_SECONDS": "0.4"}
    )
    texts = list_texts(written)
    assert any(re.match(r"  seed 0  \d/6", text) for text in texts), texts
    assert "executed" in texts
    assert any(text.startswith("  train@sft  ") for text in texts)
    assert "6 executed" in "".join(texts)
    for noise in ("Updating lock file", "Running stage", "\x1e", "> python"):
        assert noise not in written
    assert max(map(len, texts)) <= 60


@pytest.mark.slow
def test_a_run_of_which_everything_is_there_ends_with_the_verdict(
    checkout_with_flows: Path,
) -> None:
    report = checkout_with_flows / "data/report"

    def local(*options: str) -> str:
        command = [sys.executable, "-m", "flows.local", *options]
        return subprocess.run(
            command, cwd=checkout_with_flows, check=True, capture_output=True, text=True
        ).stdout

    first = local()
    assert "track | Running stage 'track':" in first
    assert "Updating lock file" not in first
    report.mkdir(parents=True)
    (report / "verdict.txt").write_text("First.\nSecond.\n")
    assert local().endswith("4 skipped\n\nFirst.\nSecond.\n")
    (report / "report.html").touch()
    again = local()
    assert "4 skipped\n\nFirst.\nSecond.\n\nThe report: data/report/report.html\n" in again
    assert local("-q") == ""


def test_how_far_a_stage_is_does_not_come_among_its_lines(tmp_path: Path) -> None:
    program = """
import os
assert os.environ["POSTTRAIN_PROGRESS"] == "records"
print('begun\\x1e{"stage": "a", "lines": ["seed 0  1/2"]}')
print('\\x1e{"torn')
print("ended")
"""
    lines: list[str] = []
    records: list[object] = []
    runner = Runner(root=tmp_path, show=records.append)
    assert runner.run([sys.executable, "-c", program], lines.append) == 0
    assert lines == ["begun", "ended"]
    assert records == [{"stage": "a", "lines": ["seed 0  1/2"]}]


def test_a_failure_is_shown_with_its_reason_and_brackets_are_no_markup() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40, color_system=None)
    with StageLines(console, is_quiet=False) as display:
        display.begin("a")
        display.show("a", {"lines": [], "numbers": "loss [bold]0.5"})
        display.log("a", "[red]a line")
        display.end(
            Result(name="a", outcome=StageOutcome.FAILED, seconds=2.0, reason="full [disk]")
        )
    written = file.getvalue()
    assert "a | [red]a line\n" in written
    assert "failed    a  2 s  loss [bold]0.5  full [disk]\n" in written
