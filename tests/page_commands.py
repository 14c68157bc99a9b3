"""Commands of the pages, run in a copy of the repository in the order in which they stand."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from page_blocks import ROOT, Block, Command, blocks_of
from pipeline_copy import PipelineCopy, make_environment
from servers import Server

COMMAND_BLOCKS = blocks_of("commands")
MODULES = {"posttrain": ["-m", "flows.command_line"], "mlflow": ["-m", "mlflow"],
           "dvc": ["-m", "dvc"], "python": []}  # fmt: skip
"""Program whose commands run in a copy, unless the page says where else -> Python's words."""


def runs_in_ci(command: Command) -> bool:
    """Whether the command is a line of .ci/run, but for uv and options on what is printed."""
    line = re.escape(shlex.join(command.words))
    text = (ROOT / ".ci/run").read_text(encoding="utf-8").replace(" --quiet", "")
    return re.search(rf"(?m)^(uv )?{line}( --durations=\d+)?$", text) is not None


def run_blocks(blocks: Iterable[Block], copy: PipelineCopy) -> None:
    """Run the commands that neither .ci/run runs, nor anything of which the page says so.

    A command that stands in several blocks runs in the first.
    Ports are free ones. What serves has to answer, and ends with its block.
    """
    seen = set[tuple[str, ...]]()
    for block in blocks:
        with ExitStack() as stack:
            for command in block.commands:
                is_new = command.words not in seen
                seen.add(command.words)
                if is_new and not command.place and not runs_in_ci(command):
                    run_command(command.words, copy, stack)
        shutil.rmtree(copy.path / "exported", ignore_errors=True)
        git = ["git", "-C", str(copy.path), "-c", "user.name=test", "-c", "user.email=@"]
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", str(block)], check=True)


def run_command(words: Sequence[str], copy: PipelineCopy, stack: ExitStack) -> None:
    """Run a command; what stays, a server or a display, ends with `stack`."""
    arguments = [*MODULES[words[0]], *words[1:]]
    if words[1] in ("server", "serve"):
        line = [sys.executable, *arguments, "--port"]
        # MLflow's processes for jobs, of which this project has none, take half a minute to start.
        environment = make_environment() | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        server = Server(lambda port: [*line, str(port)], copy.path, environment)
        stack.callback(server.send, signal.SIGKILL)
        server.start()
    elif "--live" in words:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=copy.path, env=make_environment()
        )
        stack.callback(interrupt, process)
    else:
        copy.run(*arguments)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C for a process that runs; it has to end with exit status 0."""
    assert process.poll() is None, "ended by itself"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
