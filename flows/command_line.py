"""The command `posttrain`, with this project's commands as subcommands.

    posttrain                     the commands, a line for each
    posttrain why --help          what a command does, its examples and its exit status
    posttrain run -j 2            the same as python -m flows.local -j 2

Call it in a checkout, whose code it runs. The help is the docstring of the command's module, which
is not imported.
"""

import argparse
import ast
import difflib
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

COMMANDS = {
    "run": "flows.local",
    "check": "stages.plan --check",
    "doctor": "stages.doctor",
    "why": "flows.why",
    "reach": "flows.reach",
    "export": "stages.export",
    "serve": "flows.serve",
    "rescore": "stages.rescore",
    "replay": "stages.replay",
    "track": "stages.track",
    "pipeline": "flows.pipeline",
    "sweep": "flows.sweep",
    "seeds": "flows.seeds",
    "experiments": "flows.experiments",
    "study": "studies",
    "new": "flows.new",
    "clean": "stages.runtime.clean",
}
"""Name -> arguments of `python -m`."""
FLOWS = Path(__file__).parent
EXIT_STATUS = """\
Exit status: 0, done; 1, the work failed or has a finding; 2, wrong words, and nothing was done."""


def main() -> int:
    """Run a command in place of this process, or print help; returns the exit status."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print(describe_all())
    elif name == "--version":
        print(f"posttrain {version('posttrain')}")
    elif name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"do you mean {close[0]}?" if close else "`posttrain` lists them."
        print(f"expected a command of posttrain, found {name!r}: {hint}", file=sys.stderr)
        return 2
    elif {"-h", "--help"} & {*words}:
        print(describe(name))
    elif not locate_source(name, Path()).exists():
        print(
            f"expected a checkout of posttrain, found none in {Path.cwd()}: cd into yours, then "
            f"run the command again",
            file=sys.stderr,
        )
        return 2
    else:
        # Behaves exactly as `python -m`, with its signals and exit status.
        os.execv(sys.executable, [sys.executable, "-m", *COMMANDS[name].split(), *words])
    return 0


def make_parser(module: str, text: str | None) -> argparse.ArgumentParser:
    """The parser of a command, whose help is the docstring of its module."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}", description=text, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip


def run(command: Callable[[], int | None]) -> NoReturn:
    """Run a command, and exit with its status; after a ValueError of ours with its message and 2.

    If the error has a `status`, it is that one.

    After Ctrl-C the status is 130, as in a shell.
    """
    try:
        sys.exit(command())
    except KeyboardInterrupt:
        print("Stopped: the same command goes on from what is saved.", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except ValueError as error:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if not Path(frame.f_code.co_filename).is_relative_to(FLOWS):
            raise  # of a library, which knows nothing of the command
        print(error, file=sys.stderr)
        sys.exit(getattr(error, "status", 2))


def locate_source(name: str, root: Path) -> Path:
    """The file of a command's module in a checkout."""
    path = root.joinpath(*COMMANDS[name].split()[0].split("."))
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def describe(name: str) -> str:
    """A command's help: its module's docstring, with the command's name for the module's."""
    source = locate_source(name, Path(__file__).parents[1])
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    for command, module in COMMANDS.items():
        text = text.replace(f"python -m {module}", f"posttrain {command}")
    return f"{text}\n\n{EXIT_STATUS}"


def describe_all() -> str:
    """The list of commands: the first sentence of each help."""
    width = max(map(len, COMMANDS))
    columns = shutil.get_terminal_size().columns
    rows = [f"  {name:{width}}  {describe(name).splitlines()[0]}" for name in COMMANDS]
    return "\n".join([
        "usage: posttrain <command> [words]     posttrain <command> --help     posttrain --version",
        "",
        *(row if len(row) <= columns else row[: columns - 3] + "..." for row in rows),
        "",
        "`dvc repro` runs the pipeline; these commands check, explain, watch and use it.",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
