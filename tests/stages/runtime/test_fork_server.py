"""Stages that are forked from the process that checked the plan."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux alone has pidfds")

DVC = """
import json, os, signal, subprocess, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
for command in json.loads(sys.argv[1]):
    variables = command.pop("variables", {})
    ended = subprocess.run([sys.executable, *command["words"]], env=os.environ | variables)
    print("status", ended.returncode, flush=True)
"""
FLOW = """
import os, subprocess, sys
variables = os.environ | {"POSTTRAIN_FLOW": str(os.getpid())}
first, *others = [[sys.executable, "dvc", commands] for commands in sys.argv[1:]]
subprocess.run(first, env=variables)
for each in [subprocess.Popen(command, env=variables) for command in others]:
    each.wait()
"""
CHECK = """
import os, sys
from stages.runtime import fork_server, process
before = fork_server.look_before()
import imports
from work import main
os.environ["SET_BY_AN_IMPORT"] = "yes"
owner = process.find_flow_or_dvc().pid
fork_server.start(main, owner, before, lambda: os.environ.update(PREPARED="yes"))
"""
STAGE = """
from stages.runtime import fork_server, process
fork_server.work_in_fork()
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
        print(json.dumps({
            "words": words, "argv": sys.argv, "command": sys.orig_argv[1:],
            "input": sys.stdin.read(), "id": os.getpid(), "imported": imports.PROCESS,
            "variables": dict(os.environ), "dvc": process.find_dvc().pid, "folder": os.getcwd(),
        }), flush=True)
        print("an error", file=sys.stderr)
    elif words[0] == "exit":
        sys.exit(int(words[1]))
    elif words[0] == "raise":
        raise RuntimeError("of the work")
    elif words[0] == "kill":
        os.kill(os.getpid(), getattr(signal, words[1]))
    with process.listening():
        Path("working").write_text(str(os.getpid()))
        try:
            while words[0] == "hang":
                time.sleep(0.05)
        except process.Stopped:
            Path("asked").touch()
            raise
"""


class Dvc:
    """A folder in which a program called `dvc` starts stages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files = {"dvc": DVC, "flow": FLOW, "check.py": CHECK, "stage.py": STAGE, "work.py": WORK}
        for name, content in (files | {"imports.py": "import os\nPROCESS = os.getpid()\n"}).items():
            (path / name).write_text(content)

    def start(self, *commands: str, **variables: str) -> subprocess.Popen[str]:
        """Start it in a process group of its own; `variables` are those of the last command."""
        content: list[dict[str, Any]] = [{"words": command.split()} for command in commands]
        content[-1]["variables"] = variables
        return self._start("dvc", content)

    def start_flow(self, *dvcs: list[list[str]]) -> subprocess.Popen[str]:
        """Start a flow: it runs the first list of commands, then the others side by side."""
        return self._start("flow", *([{"words": words} for words in each] for each in dvcs))

    def _start(self, program: str, *contents: list[dict[str, Any]]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, program, *map(json.dumps, contents)], cwd=self.path,
            env=os.environ | {"DVC_STAGE": "train@x"}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, *commands: str, **variables: str) -> tuple[str, str]:
        """The output and the errors."""
        return self.start(*commands, **variables).communicate("the input", timeout=60)

    def wait_for(self, name: str) -> str:
        """The content of a file that the work writes."""
        wait_until(lambda: (self.path / name).exists() and bool((self.path / name).read_text()))
        return (self.path / name).read_text()


@pytest.fixture
def dvc(tmp_path: Path) -> Dvc:
    return Dvc(tmp_path)


def wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def describe(output: str) -> dict:
    return next(json.loads(line) for line in output.splitlines() if line.startswith("{"))


def test_the_work_is_done_by_a_fork_of_the_check_with_all_that_the_stage_was_given(dvc: Dvc):
    output, errors = dvc.run("check.py", "stage.py describe two", OF_THE_STAGE="yes")
    alone, _ = dvc.run("stage.py describe two", OF_THE_STAGE="yes")
    forked, by_itself = describe(output), describe(alone)
    assert forked["imported"] == forked["id"], "the server has not this variable"
    output, errors = dvc.run("check.py", "stage.py describe two")
    forked = describe(output)
    assert forked["imported"] != forked["id"]
    assert by_itself["imported"] == by_itself["id"]
    assert errors == "an error\n"
    assert forked["variables"].pop("SET_BY_AN_IMPORT") == "yes"
    assert forked["variables"].pop("PREPARED") == "yes"
    for content in (forked, by_itself):
        del content["id"], content["imported"], content["dvc"]
        content["variables"].pop("OF_THE_STAGE", None)
    assert forked == by_itself
    assert forked["words"] == ["describe", "two"]
    assert forked["input"] == "the input"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("exit 3", 3), ("other", 0), ("raise", 1), ("kill SIGKILL", -9), ("kill SIGSEGV", -11),
    ],
)  # fmt: skip
def test_it_ends_as_its_work_does(dvc: Dvc, words: str, status: int):
    for commands in (["check.py", f"stage.py {words}"], [f"stage.py {words}"]):
        output, errors = dvc.run(*commands)
        assert output.splitlines()[-1] == f"status {status}"
        assert ("RuntimeError: of the work" in errors) == (words == "raise")


@pytest.mark.parametrize(("words", "is_forked"), [("", False), ("is_rounded=False", True)])
def test_another_rounding_is_adopted_by_the_work_or_not_served(dvc: Dvc, words, is_forked):
    """The server's is that of params.yaml, which only a stage with a model adopts."""
    (dvc.path / "stage.py").write_text(STAGE.replace("in_fork()", f"in_fork({words})"))
    (dvc.path / "check.py").write_text(
        CHECK.replace(
            "import os, sys", "import os, sys\nos.environ['POSTTRAIN_ROUNDING'] = 'native'"
        )
    )
    output, _ = dvc.run("check.py", "stage.py describe")
    forked = describe(output)
    assert (forked["imported"] != forked["id"]) == is_forked
    assert (forked["variables"].get("POSTTRAIN_ROUNDING") == "native") == is_forked


def test_a_stage_whose_code_was_edited_since_starts_by_itself(dvc: Dvc):
    package = dvc.path / "stages"
    source = Path(__file__).parents[3] / "stages"
    (package / "runtime").mkdir(parents=True)
    for name in ("__init__", "imports", "runtime/__init__", *(
        f"runtime/{name}" for name in ("fork_server", "process", "terminal")
    )):  # fmt: skip
        (package / f"{name}.py").write_text((source / f"{name}.py").read_text())
    edit = "edit.py"
    (dvc.path / edit).write_text("open('stages/runtime/terminal.py', 'a').write('# Edited.\\n')\n")
    output, _ = dvc.run("check.py", "stage.py describe")
    assert describe(output)["imported"] != describe(output)["id"]
    output, _ = dvc.run("check.py", edit, "stage.py describe")
    assert describe(output)["imported"] == describe(output)["id"]
    # While the check imports.
    with (dvc.path / "imports.py").open("a") as file:
        file.write(f"import {edit.removesuffix('.py')}\n")
    output, _ = dvc.run("check.py", "stage.py describe")
    assert describe(output)["imported"] == describe(output)["id"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_request_to_end_reaches_the_work(dvc: Dvc, number: signal.Signals):
    program = dvc.start("check.py", "stage.py hang")
    worker = int(dvc.wait_for("working"))
    [stage] = psutil.Process(program.pid).children()
    assert stage.pid != worker
    stage.send_signal(number)
    output, _ = program.communicate(timeout=60)
    assert output.splitlines()[-1] == "status 143"
    assert (dvc.path / "asked").exists()


def test_the_work_is_in_the_process_group_of_the_stage_the_server_is_not(dvc: Dvc):
    """So that Ctrl-C reaches the work, by the terminal, and the server serves on."""
    program = dvc.start("check.py", "stage.py hang")
    worker = int(dvc.wait_for("working"))
    server = psutil.Process(worker).ppid()
    assert os.getpgid(worker) == os.getpgid(program.pid) != os.getpgid(server)
    os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    wait_until(lambda: has_ended(worker) and has_ended(server))


def test_the_work_is_killed_with_the_stage(dvc: Dvc):
    program = dvc.start("check.py", "stage.py hang", "stage.py describe")
    worker = int(dvc.wait_for("working"))
    [stage] = psutil.Process(program.pid).children()
    stage.kill()
    output, _ = program.communicate("", timeout=60)
    assert output.splitlines()[1] == "status -9"
    assert has_ended(worker)
    assert not (dvc.path / "asked").exists()
    assert describe(output)["imported"] != describe(output)["id"], "the server serves on"


@pytest.mark.parametrize("victim", ["dvc", "server"])
def test_the_work_is_asked_to_end_with_dvc_or_the_server(dvc: Dvc, victim: str):
    program = dvc.start("check.py", "stage.py hang")
    worker = int(dvc.wait_for("working"))
    [stage] = psutil.Process(program.pid).children()
    server = psutil.Process(worker).ppid()
    os.kill(program.pid if victim == "dvc" else server, signal.SIGKILL)
    program.wait()
    wait_until(lambda: all(map(has_ended, (worker, server, stage.pid))))
    assert (dvc.path / "asked").exists()


def test_nothing_is_left_when_dvc_ends(dvc: Dvc):
    output, _ = dvc.run("check.py", "stage.py describe")
    assert describe(output)["imported"] != describe(output)["id"]
    left = [
        process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(dvc.path)
    ]
    wait_until(lambda: all(has_ended(process.pid) for process in left))


DESCRIBE, HANG = ["stage.py", "describe"], ["stage.py", "hang"]


def test_the_dvcs_of_a_flow_share_a_server(dvc: Dvc):
    flow = dvc.start_flow([["check.py"]], [HANG], [["stage.py", "exit", "0"]], [DESCRIBE])
    worker = int(dvc.wait_for("working"))
    by_hand, _ = dvc.run("stage.py describe", POSTTRAIN_FLOW=str(flow.pid))
    assert describe(by_hand)["imported"] == describe(by_hand)["id"], "it is no dvc of the flow"
    hanging, ended, _ = psutil.Process(flow.pid).children()
    wait_until(lambda: has_ended(ended.pid))
    assert not has_ended(worker), "the end of another dvc does not reach it"
    hanging.terminate()
    output, errors = flow.communicate(timeout=60)
    assert describe(output)["imported"] != describe(output)["id"], errors
    assert describe(output)["dvc"] != flow.pid


def test_the_dvcs_of_a_killed_flow_go_on(dvc: Dvc):
    flow = dvc.start_flow([["check.py"]], [HANG])
    worker = int(dvc.wait_for("working"))
    server = psutil.Process(worker).ppid()
    [left] = psutil.Process(flow.pid).children()
    flow.kill()
    time.sleep(0.5)
    assert not has_ended(worker)
    left.kill()
    wait_until(lambda: has_ended(worker) and has_ended(server))
    assert (dvc.path / "asked").exists()
    flow.communicate()


def test_a_stage_of_another_session_works_by_itself(dvc: Dvc):
    """Its process group cannot be joined from that of the server."""
    alone = (
        f"import os; os.setsid(); os.execv('{sys.executable}', ['python', 'stage.py', 'describe'])"
    )
    flow = dvc.start_flow([["check.py"]], [["-c", alone]])
    output, _ = flow.communicate(timeout=60)
    assert describe(output)["imported"] == describe(output)["id"]
    assert output.splitlines()[-1] == "status 0"


def test_the_work_is_asked_to_end_with_the_dvc_of_a_flow_that_goes_on(dvc: Dvc):
    """Also where a shell waits for the stage, which lives on as nobody's child."""
    shell = f"import os; os.execv('/bin/sh', ['sh', '-c', '{sys.executable} stage.py hang; true'])"
    program = dvc.start_flow([["check.py"], ["-c", shell]], [["stage.py", "describe"]])
    worker = int(dvc.wait_for("working"))
    server = psutil.Process(worker).ppid()
    [first] = psutil.Process(program.pid).children()
    first.kill()
    wait_until(lambda: has_ended(worker))
    assert (dvc.path / "asked").exists()
    output, _ = program.communicate(timeout=60)
    assert describe(output)["imported"] != describe(output)["id"], "the server serves on"
    wait_until(lambda: has_ended(server))
