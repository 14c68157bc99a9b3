"""The work of several seeds, side by side: what returns, what is written, what goes wrong."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from seed_runs import make_run

from stages.loops.work import Step
from stages.runtime import runs, seeds

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with runs.start("train@toy") as started:
        yield started


def work(run):
    """Three steps, a file, and something to return."""
    steps = (Step(index=i, metrics={"loss": 10.0 * run.seed + i}) for i in range(3))
    losses = [step.metrics["loss"] for step in run.track(steps, total=3)]
    Path(f"out-{run.seed}").write_text(str(losses))
    return {"losses": losses, "process": os.getpid()}


def test_each_seed_has_a_process_and_results_keep_the_order(run):
    result = seeds.for_each(work, make_run, [2, 0, 1], run)
    assert list(result) == [2, 0, 1]
    assert {seed: item["losses"] for seed, item in result.items()} == {
        0: [0.0, 1.0, 2.0],
        1: [10.0, 11.0, 12.0],
        2: [20.0, 21.0, 22.0],
    }
    processes = {item["process"] for item in result.values()}
    assert len(processes) == 3
    assert os.getpid() not in processes
    assert Path("out-1").read_text() == "[10.0, 11.0, 12.0]"


def test_one_seed_works_here_and_writes_the_same(run):
    alone = seeds.for_each(work, make_run, [1], run)
    assert alone[1]["process"] == os.getpid()
    assert Path("out-1").read_text() == "[10.0, 11.0, 12.0]"


def test_the_run_record_has_a_journal_a_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with runs.start("train@toy") as run:
        seeds.for_each(work, make_run, [0, 1], run)
    for seed in (0, 1):
        path = Path(f"data/journals/train/toy/journal-seed-{seed}.jsonl")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [row["metrics"]["loss"] for row in rows] == [10.0 * seed + i for i in range(3)]


def test_an_error_names_its_seed_and_ends_the_others(run):
    def fail(one):
        if one.seed == 1:
            raise ValueError("expected a, found b: do c")
        signal.pause()

    with pytest.raises(ValueError, match="expected a, found b: do c") as caught:
        seeds.for_each(fail, make_run, [0, 1], run)
    assert "in the work of seed 1" in caught.value.__notes__[0]


class Coded(Exception):
    """One that a pipe cannot bring: as it comes out, it is made without its code."""

    def __init__(self, *, code):
        super().__init__(f"code {code}")


def test_an_error_that_cannot_be_sent_is_told_in_words(run):
    def fail(one):
        raise Coded(code=7)

    with pytest.raises(RuntimeError, match="Coded: code 7") as caught:
        seeds.for_each(fail, make_run, [0, 1], run)
    assert "in the work of seed" in caught.value.__notes__[0]


def test_a_process_that_is_killed_is_told(run):
    def die(one):
        if one.seed == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()

    with pytest.raises(RuntimeError, match=r"of seed 0 ended without a word, exited with -9$"):
        seeds.for_each(die, make_run, [0, 1], run)


@pytest.mark.parametrize(
    ("numbers", "num_processes", "told"),
    [([0, 1], 1, "ended without a word, exited with 143"), ([0], 2, "rank 1 failed")],
)
def test_one_that_is_asked_to_end_as_soon_as_it_exists_does_nothing_of_its_parents(
    numbers, num_processes, told, tmp_path
):
    program = f"""
import os, signal
from stages.runtime import runs, seeds
parent, fork = os.getpid(), os.fork
def fork_and_ask():
    if (child := fork()) == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    return child
os.fork = fork_and_ask
try:
    with runs.start("train@toy") as run:
        nothing = lambda *_, **__: None
        seeds.for_each(nothing, nothing, {numbers}, run, num_processes={num_processes})
finally:
    print("this is the" + " parent" * (os.getpid() == parent), flush=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.stdout == "this is the parent\n"
    assert ended.returncode == 1
    assert told in ended.stderr
