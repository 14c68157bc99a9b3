"""Stages that are run: each attempt and its outcome, their order, child processes, the display."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from prefect.exceptions import ParameterTypeError
from process_groups import is_running
from rich.console import Console
from ruamel.yaml import YAML
from terminals import list_texts, run_on_terminal
from toy_repo import GIT, ToyRepo, init_dvc, make_toy_repo, wait_until

from flows import execute, pipeline, process
from flows.display import StageLines
from flows.dvc_internals import mend
from flows.execute import Result, StageOutcome, classify, find_error, run_stage
from flows.local import make_parser, run_plan
from flows.plan import StageNode, make_plan
from flows.process import Runner, StoppedError, child_environment, exit_when_terminated, kill_tree
from stages.runtime import process as stage_process

# What another attempt can cure: a script in place of DVC, each attempt of it a real process.

ROWS = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))
TEXTS, OK = ROWS["texts"], [(0, ROWS["texts"]["run"])]
BUSY = (255, TEXTS["busy"])


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Runner]:
    """`script(attempts)`: DVC is a script that prints and exits with each in its turn."""

    def make(attempts: list[tuple[int, str]]) -> Runner:
        for number, (status, output) in enumerate(attempts):
            (tmp_path / f"{number}.txt").write_text(f"{TEXTS.get(output, output)}\n")
            (tmp_path / f"{number}.sh").write_text(f"cat {number}.txt; exit {status}")
        text = 'n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; exec sh "$n.sh"'
        (tmp_path / "attempt").write_text(text)
        monkeypatch.setattr(execute, "DVC", ("sh", "attempt"))
        return Runner(root=tmp_path, pause_seconds=0.0)

    return make


@pytest.mark.parametrize("name", ROWS["attempts"])
def test_outcome_of_a_stage_that(script, monkeypatch, name: str) -> None:
    row = ROWS["attempts"][name]
    monkeypatch.delenv("POSTTRAIN_SEEDS_PER_GPU", raising=False)
    if "per_gpu" in row:
        monkeypatch.setenv("POSTTRAIN_SEEDS_PER_GPU", row["per_gpu"])
    fails = [(255, text) for text in row.get("fails", ())]
    result = run_stage("a", script(fails + [(0, text) for text in row["ends"]]))
    assert (result.outcome.value, result.attempts) == (row["outcome"], row["number"])
    assert bool(result.reason) == bool(fails)


def test_a_path_is_waited_for_as_long_after_a_kill_as_at_the_start(
    script: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(execute, "BUSY_SECONDS", 2.0)
    runner = script([(137, ""), BUSY, *OK])
    (tmp_path / "0.sh").write_text("sleep 3; exit 137")
    result = run_stage("a", runner)
    assert (result.outcome, result.attempts) == (StageOutcome.EXECUTED, 3)


def test_a_path_in_use_is_given_up_after_a_while_but_not_by_a_seed_and_a_timeout_is_final(
    script, monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr(execute, "BUSY_SECONDS", 0.0)
    assert run_stage("a", script([BUSY, *OK])).attempts == 1
    (tmp_path / "n").unlink()
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/__init__.py").touch()
    code = 'import os\nos.execvp("sh", ["sh", "attempt"])\n'
    (tmp_path / "flows/seeds.py").write_text(code)
    result = run_stage("a", script([BUSY, (0, "")]), seed=1)
    assert (result.outcome, result.attempts) == (StageOutcome.EXECUTED, 2)
    (tmp_path / "attempt").write_text("exec sleep 600")
    result = run_stage("a", Runner(root=tmp_path, timeout_hours=0.3 / 3600))
    assert (result.outcome, result.attempts) == (StageOutcome.FAILED, 1)
    assert "timeout" in result.reason


@pytest.mark.parametrize(("status", "output", "trouble"), ROWS["causes"])
def test_cause_of_a_failure(status: int, output: str, trouble: str) -> None:
    assert classify(status, TEXTS.get(output, output)).name == trouble


@pytest.mark.parametrize(("lines", "error"), ROWS["reasons"])
def test_reason_of_a_failure(lines: list[str], error: str) -> None:
    assert find_error(lines) == error


# The same with DVC itself.


@pytest.mark.slow
def test_a_stage_that_is_killed_or_fails_and_what_a_kill_of_dvc_leaves(toy: ToyRepo) -> None:
    work, lock = toy.path / "work.py", toy.path / "dvc.lock"
    tear = '    pathlib.Path("dvc.lock").write_text("stages:\\n  prepare")\n    os.kill('
    work.write_text(work.read_text().replace("    os.kill(", tear))
    runner = Runner(root=toy.path, pause_seconds=0.0)
    toy.repro("-q")
    toy.commit()
    committed = lock.read_text()
    toy.change(left={"mode": "killed_once"})
    before = toy.started()
    result = run_stage("side@left", runner)
    assert (result.outcome.value, result.attempts) == ("executed", 3), result.reason
    assert toy.started()[len(before) :] == ["left", "left"]
    whole = lock.read_text()
    # between two lines, which DVC accepts, and within a word, which it does not
    torn = whole.rindex("md5:") + 2
    for cut in (whole.rindex("outs:") - 1, torn):
        lock.write_text(whole[:cut])
        (toy.path / ".dvc/tmp/rwlock").write_text('{"read": {')
        assert run_stage("track", runner).outcome.good
        assert "side@left" in toy.locked()
    lock.write_text(whole[:torn])
    assert not make_plan(toy.path, ["prepare"])["prepare"].changes
    assert lock.read_text() == committed
    toy.change(left={"mode": "value_error"})
    result = run_stage("side@left", runner)
    assert (result.outcome.value, result.attempts) == ("failed", 1)
    assert result.reason == "failed: ValueError: expected a number, found a word"


@pytest.mark.slow
def test_a_path_in_use_by_another_dvc_is_waited_for(toy: ToyRepo) -> None:
    # Two runs of one stage want to write the same output: DVC refuses the second at once.
    runner, results = Runner(root=toy.path, pause_seconds=0.1), []
    toy.change(left={"mode": "wait"})
    started = len(toy.started())
    thread = threading.Thread(target=lambda: results.append(run_stage("side@left", runner)))
    thread.start()
    wait_until(lambda: len(toy.started()) > started, "the first run at work")

    def release_the_first(line: str) -> None:
        if "is busy" in line:
            (toy.path / "release").touch()

    second = run_stage("side@left", replace(runner, log=release_the_first))
    thread.join()
    assert results[0].outcome is StageOutcome.EXECUTED
    assert second.outcome is StageOutcome.SKIPPED
    assert second.attempts >= 2


# What a kill of DVC leaves, at which later commands would fail.

LOCK = "schema: '2.0'\nstages:\n  a:\n    cmd: {}\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    init_dvc(tmp_path)
    (tmp_path / "dvc.lock").write_text(LOCK.format("one"))
    for words in (["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*GIT, *words], cwd=tmp_path, check=True)
    return tmp_path


def test_what_a_killed_dvc_left_is_mended_and_what_is_whole_stays(repository: Path) -> None:
    runs = repository / ".dvc/cache/runs/ab"
    rwlock = repository / ".dvc/tmp/rwlock"
    for path in (runs / "abempty", runs / "abfilled", rwlock.parent):
        path.mkdir(parents=True)
    (runs / "abfilled/entry").write_text("cmd: x\n")
    rwlock.write_text("")
    (repository / "dvc.lock").write_text(LOCK.format("newer"))
    mend(repository)
    assert [path.name for path in runs.iterdir()] == ["abfilled"]
    assert not rwlock.exists()
    assert (repository / "dvc.lock").read_text() == LOCK.format("newer")
    (repository / "dvc.lock").write_text(LOCK.format("two")[:-9])
    subprocess.run(["rm", "-r", ".git"], cwd=repository, check=True)
    (repository / ".dvc/config").write_text("[core]\n    no_scm = true\n")
    mend(repository)
    assert not (repository / "dvc.lock").exists()


def test_a_lock_in_conflict_or_on_a_full_disk_stays_as_it_is(repository: Path, monkeypatch) -> None:
    lock, cut = repository / "dvc.lock", LOCK.format("two")[:-9]
    conflict = f"<<<<<<< HEAD\n{LOCK.format('a')}=======\n{LOCK.format('b')}>>>>>>> theirs\n"
    lock.write_text(conflict)
    with pytest.raises(ValueError, match="HEAD and theirs"):
        mend(repository)
    assert lock.read_text() == conflict
    lock.write_text(cut)

    def write_bytes(path: Path, content: bytes) -> int:
        if content:
            raise OSError(28, "full")
        return path.write_text("")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", write_bytes)
        with pytest.raises(OSError, match="full"):
            mend(repository)
    assert lock.read_text() == cut
    mend(repository)
    assert lock.read_text() == LOCK.format("one")
    assert list(repository.glob(".dvc.lock*")) == []


@pytest.mark.parametrize("package", ["flows", "stages"])
def test_a_user_without_an_account_has_a_name_for_dvc(package: str) -> None:
    start = "import getpass, os\nos.getuid = lambda: 2**31 - 9\n"
    program = f"{start}import {package}\nprint(getpass.getuser())"
    names = {"USER", "LOGNAME", "LNAME", "USERNAME"}
    environment = {key: value for key, value in os.environ.items() if key not in names}
    output = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert output == f"{2**31 - 9}\n"


# Child processes.

# Prints the id of a grandchild, and waits for it.
PARENT = ["sh", "-c", "sleep 600 & echo $!; wait"]


@pytest.mark.parametrize("shows_progress", [False, True])
def test_output_and_errors_arrive_line_by_line_without_progress(tmp_path, shows_progress) -> None:
    text = r"""
    echo one; echo two >&2; echo; test -z "$POSTTRAIN_PROGRESS" || {
    printf 'begun\036{"stage": "a"}\n\036{"torn\n'; }; printf three; exit 7"""
    lines: list[str] = []
    records: list[object] = []
    runner = Runner(root=tmp_path, show=records.append if shows_progress else None)
    assert runner.run(["sh", "-c", text], lines.append) == 7
    assert lines == ["one", "two", "", *(["begun"] if shows_progress else []), "three"]
    assert records == ([{"stage": "a"}] if shows_progress else [])


@pytest.mark.parametrize(
    ("cause", "error"),
    [("timeout", TimeoutError), ("cancel", StoppedError), ("log", RuntimeError)],
)
def test_a_run_ends_with_its_grandchild_at_a(tmp_path: Path, cause, error) -> None:
    runner, pids = Runner(root=tmp_path), []

    def take(line: str) -> None:
        pids.append(int(line))
        if cause == "cancel":
            runner.cancel.set()
        if cause == "log":
            raise RuntimeError

    with pytest.raises(error):
        runner.run(PARENT, take, timeout_hours=1 / 3600 if cause == "timeout" else None)
    wait_until(lambda: not is_running(pids[0]), "the end of the grandchild", 60)


def test_dvc_is_interrupted_and_what_is_below_it_terminated(tmp_path: Path) -> None:
    child = "trap 'echo TERM > child; exit' TERM; trap 'echo INT > child; exit' INT"
    root = "trap 'echo TERM > root; exit' TERM; trap 'echo INT > root; exit' INT"
    (tmp_path / "child.sh").write_text(f"{child}\ntouch ready\nwhile :; do sleep 0.05; done\n")
    # Python, whose interrupt is not ignored in what a shell starts in the background
    start = (
        "import signal, subprocess\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "subprocess.run(['sh', 'child.sh'])\n"
    )
    (tmp_path / "start.py").write_text(start)
    text = f"{root}\n{sys.executable} start.py &\nwhile :; do sleep 0.05; done\n"
    parent = psutil.Popen(["sh", "-c", text], cwd=tmp_path)
    wait_until((tmp_path / "ready").exists, "both processes", 60)
    kill_tree(parent.pid, grace_seconds=20.0)
    assert not is_running(parent.pid)
    assert (tmp_path / "root").read_text() == "INT\n"
    assert (tmp_path / "child").read_text() == "TERM\n"


def test_a_process_that_ignores_the_signals_is_killed(tmp_path: Path) -> None:
    text = "trap '' INT TERM; touch ready; while :; do sleep 0.1; done"
    stubborn = psutil.Popen(["sh", "-c", text], cwd=tmp_path)
    wait_until((tmp_path / "ready").exists, "its traps", 60)
    kill_tree(stubborn.pid, grace_seconds=0.3)
    assert not is_running(stubborn.pid)


def test_a_background_process_that_keeps_the_pipe_open_is_not_waited_for(tmp_path: Path) -> None:
    lines: list[str] = []
    assert Runner(root=tmp_path).run(["sh", "-c", "sleep 600 & echo $!"], lines.append) == 0
    assert is_running(int(lines[0]))
    kill_tree(int(lines[0]), grace_seconds=0.1)  # sh made it ignore interrupts


def test_a_child_has_our_python_and_the_id_of_the_flow(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")  # an environment that is not activated
    environment = child_environment()
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert environment[stage_process.FLOW] == str(os.getpid())


def test_a_stage_has_the_time_that_its_checkpoint_may_take() -> None:
    seconds = stage_process.SECONDS_TO_END + stage_process.SECONDS_TO_SAVE
    assert seconds < process.GRACE_SECONDS


# Several stages side by side.


def node(name: str, *upstream: str) -> StageNode:
    return StageNode(name=name, deps=(), outs=(), params=(), upstream=upstream, gpu=0)


# a -> b, c, d -> e -> f
NODES = (*(node(x, *"a"[: x != "a"]) for x in "abcd"), node("e", "b", "c", "d"), node("f", "e"))
PLAN = {item.name: item for item in NODES}


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (2, 2), (9, 3)])
def test_independent_stages_run_side_by_side_up_to_the_limit(tmp_path, limit, most) -> None:
    order, running, seen = [], set(), []
    full = threading.Event()

    def run(stage: StageNode) -> Result:
        order.append(stage.name)
        running.add(stage.name)
        seen.append(len(running))
        if len(running) == most:
            full.set()
        if stage.name in "bcd":
            assert full.wait(60)
        running.remove(stage.name)
        return Result(outcome=StageOutcome.EXECUTED)

    results = run_plan(PLAN, run, Runner(root=tmp_path), limit)
    assert max(seen) == most
    assert list(results) == list("abcdef")
    assert (order[0], order[-2:]) == ("a", ["e", "f"])


def test_a_limit_is_at_least_one_stage(capsys) -> None:
    assert make_parser("flows.local", "").parse_args(["-j", "1"]).max_parallel == 1
    with pytest.raises(SystemExit) as refused:
        make_parser("flows.local", "").parse_args(["-j", "0"])
    assert refused.value.code == 2
    assert "expected 1 or more, found 0" in capsys.readouterr().err
    with pytest.raises(ParameterTypeError, match="max_parallel"):  # before there is a flow run
        pipeline.pipeline.validate_parameters({"max_parallel": 0})


@pytest.mark.parametrize("failing", ["b", "c"])  # by its result, by an error in the flow
def test_a_failure_blocks_all_that_needs_it_and_nothing_else(tmp_path, failing) -> None:
    def run(stage: StageNode) -> Result:
        if stage.name == failing == "c":
            raise OSError("no threads")
        outcome = StageOutcome.FAILED if stage.name == failing else StageOutcome.EXECUTED
        return Result(outcome=outcome)

    results = run_plan(PLAN, run, Runner(root=tmp_path), 1)
    outcomes = {name: result.outcome.value for name, result in results.items()}
    blocked = {"e": "blocked", "f": "blocked"}
    assert outcomes == dict.fromkeys("abcd", "executed") | {failing: "failed"} | blocked
    assert failing in results["e"].reason


def test_an_interrupt_cancels_what_runs_and_starts_nothing_else(tmp_path: Path) -> None:
    runner, order = Runner(root=tmp_path), []

    def run(stage: StageNode) -> Result:
        order.append(stage.name)
        if stage.name == "b":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
            assert runner.cancel.wait(20)
        return Result(outcome=StageOutcome.EXECUTED)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    exit_when_terminated()
    try:
        with pytest.raises(SystemExit):
            run_plan(PLAN, run, runner, 1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert order == ["a", "b"]
    assert runner.cancel.is_set()


def test_the_command_gives_what_dvc_repro_gives(new_toy: ToyRepo, finished_toy: ToyRepo) -> None:
    names = [line.partition(":")[0] for line in new_toy.flow("-n").splitlines()]
    assert sorted(names) == ["prepare", "side@left", "side@right", "track"]
    assert new_toy.started() == []
    first = new_toy.flow("-j", "3")
    assert "4 executed" in first
    assert "side@left | working on data/side/left" in first
    assert sorted(new_toy.started()) == ["left", "prepare", "right", "track"]
    assert new_toy.locked() == finished_toy.locked()
    assert new_toy.results() == finished_toy.results()
    report = new_toy.path / "data/report"
    report.mkdir()
    (report / "verdict.txt").write_text("First.\nSecond.\n")
    (report / "report.html").touch()
    again = new_toy.flow()
    assert "4 skipped\n\nFirst.\nSecond.\n" in again
    assert "data/report/report.html" in again
    assert new_toy.flow("-q") == ""
    assert len(new_toy.started()) == 4


def test_a_failure_is_in_the_exit_status_and_a_wrong_stage_is_refused(toy: ToyRepo) -> None:
    toy.change(left={"mode": "value_error"})
    output = toy.flow(code=1)
    assert "2 skipped, 1 failed, 1 blocked" in output
    assert "ValueError" in output
    output = toy.flow("trian", code=2)
    assert "'trian'" in output
    assert "side@left" in output


@pytest.mark.slow
def test_ending_the_command_ends_its_stages(toy: ToyRepo) -> None:
    toy.change(left={"mode": "spawn"})
    flow = toy.start(sys.executable, "-m", "flows.local", "side@left")
    below = toy.grandchild()
    flow.send_signal(signal.SIGTERM)
    flow.communicate(timeout=120)
    assert flow.returncode == 128 + signal.SIGTERM
    wait_until(lambda: not is_running(below.pid), "the stage's end", 60)
    # the killed DVC left nothing that stops the next one
    toy.change(left={"mode": "work again"})
    assert "1 executed" in toy.flow("side@left")


# What a person sees.


@pytest.mark.slow
def test_stages_on_a_terminal_have_a_line_a_seed_and_leave_one_line_each(tmp_path: Path) -> None:
    repo = make_toy_repo(tmp_path / "toy")
    command = [sys.executable, "-m", "flows.local", "-j", "2", "compare"]
    environment = repo.environment | {"COLUMNS": "60", "TOY_SECONDS": "0.4"}
    written = run_on_terminal(command, repo.path, 60, environment)
    texts = list_texts(written)
    assert any(re.match(r"  seed 0  \d/6", text) for text in texts), texts
    assert "executed" in texts
    assert any(text.startswith("  train@sft  ") for text in texts)
    assert "6 executed" in "".join(texts)
    for noise in ("Updating lock file", "Running stage", "\x1e", "> python"):
        assert noise not in written
    assert max(map(len, texts)) <= 60


def test_a_stage_that_ended_leaves_a_line_with_its_reason_unless_it_was_skipped() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40, color_system=None)
    with StageLines(console, is_quiet=False) as display:
        display.begin("a")
        display.show("a", {"lines": [], "numbers": "loss [bold]0.5"})
        display.log("a", "[red]a line")
        display.log("a", "Updating lock file 'dvc.lock'")
        reason = "full [disk]"
        display.end("a", Result(outcome=StageOutcome.FAILED, seconds=2.0, reason=reason))
        display.end("b", Result(outcome=StageOutcome.SKIPPED))
    written = file.getvalue()
    assert "a | [red]a line\n" in written
    assert "failed    a  2 s  loss [bold]0.5  full [disk]\n" in written
    assert "skipped" not in written
    assert "lock file" not in written
