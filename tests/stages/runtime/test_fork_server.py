"""Stages that are forked from the process that checked the plan."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest
from process_groups import is_running
from toy_repo import wait_until

import stages
from stages.runtime import fork_server

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux alone has pidfds")
DVC = """
import json, os, signal, subprocess, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
for command in sys.argv[1:]:
    ended = subprocess.run([sys.executable, *command.split()])
    print("status", ended.returncode, flush=True)
"""
CHECK = """
from stages.runtime import fork_server, process
def check():
    import imports
def import_more():
    raise ImportError("late")
fork_server.serve(process.find_flow_or_dvc().pid, check, import_more)
from work import main
process.run(main)
"""
STAGE = """
from stages.runtime import fork_server, process
fork_server.work_in_fork(imports_much=False)
from work import main
process.run(main)
"""
WORK = """
import json, os, signal, sys, time
from pathlib import Path
from stages.runtime import process
def main(*words):
    import imports
    if words[0] == "describe":
        print(json.dumps({"words": words, "argv": sys.argv, "input": sys.stdin.read(),
                          "folder": os.getcwd(), "forked": os.getpid() != imports.PROCESS}),
              flush=True)
    elif words[0] == "exit":
        sys.exit(int(words[1]))
    elif words[0] == "kill":
        os.kill(os.getpid(), getattr(signal, words[1]))
    with process.listening():
        Path("working").write_text(str(os.getpid()))
        try:
            while words[0] == "hang":
                time.sleep(0.05)
        except process.Stopped:
            Path("tidied").touch()
            raise
"""


@pytest.fixture
def dvc(tmp_path):
    """Start a program called `dvc` with commands, in a process group of its own."""
    files = {"dvc": DVC, "check.py": CHECK, "stage.py": STAGE, "work.py": WORK,
             "imports.py": "import os\nPROCESS = os.getpid()\n"}  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_text(content)

    def start(*commands):
        return subprocess.Popen(
            [sys.executable, "dvc", *commands], cwd=tmp_path, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, start_new_session=True,
            env=os.environ | {"DVC_STAGE": "train@x"},
        )  # fmt: skip

    return start


def test_the_work_is_done_by_a_fork_as_the_stage_itself_would(dvc, tmp_path):
    outputs = []
    for commands in (["check.py", "stage.py describe two"], ["stage.py describe two"]):
        output, _ = dvc(*commands).communicate("the input", timeout=120)
        outputs.append(next(json.loads(line) for line in output.splitlines() if line[0] == "{"))
    assert [output.pop("forked") for output in outputs] == [True, False]
    assert outputs[0] == outputs[1]
    assert outputs[0]["input"] == "the input"


@pytest.mark.parametrize(("words", "status"), [
    ("exit 3", 3), ("other", 0), ("kill SIGKILL", -9), ("kill SIGSEGV", -11),
])  # fmt: skip
def test_a_stage_ends_as_its_forked_work_does(words, status, dvc):
    output, _ = dvc("check.py", f"stage.py {words}").communicate(timeout=120)
    assert output.splitlines()[-1] == f"status {status}"


@pytest.mark.parametrize(
    ("victim", "number"),
    [("stage", signal.SIGTERM), ("dvc", signal.SIGKILL), ("server", signal.SIGKILL)],
)
def test_the_forked_work_ends_with_whom_it_is_for_and_none_stays(victim, number, dvc, tmp_path):
    program, working = dvc("check.py", "stage.py hang"), tmp_path / "working"
    wait_until(lambda: working.exists() and working.read_text(), "the work", 60)
    worker = psutil.Process(int(working.read_text()))
    server = worker.parent()
    [stage] = psutil.Process(program.pid).children()
    of_dvc = [worker, server, stage]
    pids = {"stage": stage.pid, "dvc": program.pid, "server": server.pid}
    os.kill(pids[victim], number)
    program.wait()
    try:
        wait_until(lambda: all(not is_running(each.pid) for each in of_dvc), "their end", 30)
    finally:
        for process in of_dvc:
            with suppress(psutil.Error):
                process.kill()
    assert (tmp_path / "tidied").exists()


def test_the_forked_work_of_a_killed_stage_is_killed_while_dvc_goes_on(dvc, tmp_path):
    (tmp_path / "wait.py").write_text("input()")
    program, working = dvc("check.py", "stage.py hang", "wait.py"), tmp_path / "working"
    wait_until(lambda: working.exists() and working.read_text(), "the work", 60)
    worker = psutil.Process(int(working.read_text()))
    [stage] = psutil.Process(program.pid).children()
    try:
        stage.kill()
        wait_until(lambda: not is_running(worker.pid), "its end", 30)
        assert program.poll() is None
    finally:
        with suppress(psutil.Error):
            worker.kill()
        output, _ = program.communicate("\n", timeout=60)
    assert output.splitlines()[-2:] == ["status -9", "status 0"]
    assert not (tmp_path / "tidied").exists()


def test_the_address_is_of_code_texts_and_variables(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "journal.py").write_text("a")
    (tmp_path / ".#journal.py").symlink_to("somebody@host")  # the lock of an editor
    owner = psutil.Process()
    address = fork_server.locate(owner)
    monkeypatch.setenv("DVC_STAGE", "another")
    assert fork_server.locate(owner) == address
    addresses = {address}
    for edit in (
        lambda: (tmp_path / "journal.py").write_text("ab"),
        (tmp_path / "prompts.yaml").touch,
        lambda: monkeypatch.setenv("ONE", "1"),
        lambda: monkeypatch.chdir(tmp_path),
    ):
        edit()
        addresses.add(fork_server.locate(owner))
    assert len(addresses) == 5
