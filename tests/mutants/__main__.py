"""Plant faults, one at a time, and see whether the tests of their folder notice.

    python -m tests.mutants                      every fault of every list
    python -m tests.mutants algorithms loops     the lists algorithms.yaml and loops.yaml
    python -m tests.mutants loops --only l02,l07
    python -m tests.mutants loops --tests tests/golden

A list names the tests that are run on each of its faults, and the faults: an id, the kind, a file,
a text that occurs in it once, and what takes its place. Each fault is planted in a copy of the
working tree, in a process that is forked after the imports of other projects' modules; the first
test that fails ends it.
Prints a line for each fault, then the counts; exits with 1 if a fault survives.
"""

import argparse
import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
LISTS = Path(__file__).parent
LIMIT_SECONDS = 900
"""A fault that makes a test hang is noticed, too."""
PINNED = {"MKL_CBWR": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
          "OMP_NUM_THREADS": "1"}  # fmt: skip
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib"]
QUICK = ["-m", "not learning and not slow and not weekly"]
WRONG_USAGE, NO_TESTS = 4, 5
SLOW = ["-m", "(slow or weekly) and not (environments or learning or parity or smollm2 or vllm)"]
COLLECT = """
import sys, pytest
pytest.main(sys.argv[1:])
packages = [name for name, module in sys.modules.items()
            if "site-packages" in (getattr(module, "__file__", None) or "")
            and not name.startswith(("_", "pytest"))]
print(*packages, file=sys.stderr)
"""


@dataclass(frozen=True)
class Fault:
    id: str
    kind: str
    file: str
    old: str
    new: str
    tests: list[str] = field(default_factory=list)
    """What is run on this fault in place of the list's tests."""


def read_lists(names: list[str]) -> dict[str, tuple[list[str], list[Fault]]]:
    """Name of a list -> its tests, and its faults."""
    paths = [LISTS / f"{name}.yaml" for name in names] or sorted(LISTS.glob("*.yaml"))
    contents = {path.stem: YAML(typ="safe").load(path) for path in paths}
    return {
        name: (content["tests"], [Fault(**fault) for fault in content["faults"]])
        for name, content in contents.items()
    }


def plant(fault: Fault, folder: Path) -> str:
    """Put the fault in place; what the file was before."""
    path = folder / fault.file
    text = path.read_text(encoding="utf-8")
    if (count := text.count(fault.old)) != 1:
        place = f"{fault.id}: expected its `old` once in {fault.file}"
        raise ValueError(f"{place}, found it {count} times: edit the list")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return text


def copy_tree(folder: Path) -> None:
    """The files of the working tree that git knows or would add."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, names):
        source, target = ROOT / os.fsdecode(name), folder / os.fsdecode(name)
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    if (ROOT.parent / "shared").is_dir():
        (folder.parent / "shared").symlink_to(ROOT.parent / "shared")


def rounds(fault: Fault, tests: list[str], folder: Path) -> list[list[str]]:
    """pytest's arguments: the test file of the fault's name, all other tests, those that are slow.

    Most faults end in the first round, which need not collect the others.
    """
    name = f"test_{Path(fault.file).stem}.py"
    mirrors = [path.relative_to(folder).as_posix() for test in tests
               for path in sorted((folder / test).rglob(name))]  # fmt: skip
    others = [*tests, *(f"--ignore={mirror}" for mirror in mirrors)]
    return [*([[*QUICK, *mirrors]] if mirrors else []), [*QUICK, *others], [*SLOW, *tests]]


def import_dependencies(folder: Path, tests: set[str]) -> None:
    """Import whatever the tests' modules import from other projects, for every fork to have it."""
    listing = [sys.executable, "-c", COLLECT, *OPTIONS, "--collect-only", *sorted(tests)]
    done = subprocess.run(listing, cwd=folder, capture_output=True, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": str(folder)})  # fmt: skip
    for name in done.stderr.splitlines()[-1].split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def run_tests(folder: Path, arguments: list[str], log: Path) -> str:
    """What became of the tests: passed, a name of one that failed, or hung."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(folder)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(ROOT)))]
        os.environ["PYTHONPATH"] = str(folder)
        import pytest

        code = 3
        with contextlib.suppress(BaseException):
            code = int(pytest.main([*OPTIONS, *arguments]))
        os._exit(code)
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            break
        time.sleep(0.05)
    else:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hung"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests left running
    code = os.waitstatus_to_exitcode(status)
    if code in (0, NO_TESTS):
        return "passed"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    names = [line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    if code == WRONG_USAGE:
        raise ValueError(f"pytest cannot run {arguments}: see {log}")
    return names[0] if names else f"pytest ended with {code}"


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("tests.mutants", description=__doc__, formatter_class=raw)
    parser.add_argument("lists", nargs="*")
    parser.add_argument("--only", default="", help="ids, with commas")
    parser.add_argument("--tests", nargs="+", help="in place of the lists' own")
    arguments = parser.parse_args()
    os.environ |= PINNED
    survivors, number = [], 0
    only = set(filter(None, arguments.only.split(",")))
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "posttrain"
        folder.mkdir()
        copy_tree(folder)
        lists = read_lists(arguments.lists).items()
        chosen = [(name, tests, fault) for name, (tests, faults) in lists for fault in faults
                  if not only or fault.id in only]  # fmt: skip
        listed = [arguments.tests or fault.tests or tests for _, tests, fault in chosen]
        import_dependencies(folder, {test for tests in listed for test in tests})
        for name, tests, fault in chosen:
            started = time.monotonic()
            tests_of_fault = arguments.tests or fault.tests or tests
            before = plant(fault, folder)
            try:
                for options in rounds(fault, tests_of_fault, folder):
                    result = run_tests(folder, options, Path(parent) / "log")
                    if result != "passed":
                        break
            finally:
                (folder / fault.file).write_text(before, encoding="utf-8")
            number += 1
            survivors += [fault.id] if result == "passed" else []
            verdict = "SURVIVED" if result == "passed" else f"caught by {result}"
            seconds = time.monotonic() - started
            print(f"{name} {fault.id} ({fault.kind}): {verdict} [{seconds:.0f} s]", flush=True)
    survived = ", ".join(survivors) or "none"
    print(f"{number - len(survivors)} of {number} caught; survived: {survived}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
