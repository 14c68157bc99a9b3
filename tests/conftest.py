"""Every process of the tests computes with the pinned instructions, as stages do; and repositories
in which the whole pipeline runs."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pipeline_copy import Edit, PipelineCopy

from stages.config import read_yaml
from stages.models import device
from stages.runtime import process

# Before any test computes: MKL chooses its instructions once in the life of a process.
device.pin_instructions()
# A shell has its background jobs ignore Ctrl-C, nohup a terminal that is closed, and with them all
# that they start: not here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


NAMED = ("slow", "vllm", "environments")
"""Marks by whose names .ci/run looks for the files that it gives pytest."""


LONGEST = (
    "test_pipeline.py", "staleness/test_staleness.py", "flows/test_agents.py", "test_outages.py",
)  # fmt: skip
"""Files that take minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, else a process would work alone at the end."""
    items.sort(key=lambda item: not str(item.path).endswith(LONGEST))
    texts = {path: path.read_text(encoding="utf-8") for path in {item.path for item in items}}
    for item in items:
        for mark in item.iter_markers():
            if mark.name in NAMED and mark.name not in texts[item.path]:
                raise pytest.UsageError(f"{item.nodeid}: expected its file to name {mark.name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure is named at once: a run that is stopped for its time has no summary."""
    report = yield
    if report.failed:
        errors = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
        print(f"\nFAILED {report.nodeid}", *errors[:1], file=sys.stderr, flush=True)
    return report


@pytest.fixture(autouse=True)
def _handlers_of_signals() -> Iterator[None]:
    """Where a test leaves Ctrl-C ignored, the programs of later ones cannot be stopped."""
    before = {number: signal.getsignal(number) for number in process.SIGNALS}
    yield
    assert {number: signal.getsignal(number) for number in process.SIGNALS} == before


SMALL = read_yaml(Path(__file__).with_name("small_pipeline.yaml"))


def update(content: dict[str, Any], changes: dict[str, Any]) -> None:
    """Change values in place, also those of keys inside keys."""
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(content.get(key), dict):
            update(content[key], value)
        else:
            content[key] = value


def shrink(params: dict[str, Any], presets: dict[str, Any]) -> None:
    """Make a pipeline small, in place."""
    update(params, SMALL["params"])
    update(presets, SMALL["presets"])
    for preset in presets.values():
        if preset.get("num_minibatches", 0) > params["grpo"]["prompts_per_step"]:
            preset["num_minibatches"] = params["grpo"]["prompts_per_step"]


@pytest.fixture
def torch_settings() -> Iterator[None]:
    """Torch's number of threads and deterministic mode, which stages set, are restored."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of `SMALL_DISK` bytes of the test's module."""
    folder = tmp_path / "small"
    folder.mkdir()
    size = f"size={request.module.SMALL_DISK}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root, outside a closed container")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="session")
def pipeline_copy(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Edit], PipelineCopy]:
    """Makes a small copy of the repository, further changed by the function it is given."""

    def make(change: Edit) -> PipelineCopy:
        path: Path = tmp_path_factory.mktemp("copy")
        copy = PipelineCopy(path, shrink)
        copy.change(change)
        return copy

    return make
