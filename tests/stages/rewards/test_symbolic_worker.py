"""The limits of the process in which math-verify runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from stages.rewards import symbolic_equality, symbolic_worker

linux = pytest.mark.skipif(sys.platform != "linux", reason="no limit on memory elsewhere")


@linux
def test_more_memory_than_the_limit_is_an_error_in_the_worker_and_nothing_else() -> None:
    program = (
        "from stages.rewards import symbolic_worker as worker\n"
        "worker.limit_memory()\n"
        "small = bytearray(worker.MEMORY_BYTES // 4)\n"
        "try:\n    large = bytearray(worker.MEMORY_BYTES)\n"
        "except MemoryError:\n    print('refused')\n"
    )
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "refused\n"


@linux
def test_the_worker_that_runs_has_the_limit() -> None:
    symbolic_equality.equal(r"\sqrt{4}", r"\sqrt 4")
    worker = symbolic_equality._verifier.worker
    assert worker is not None
    limits = Path(f"/proc/{worker.pid}/limits").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in limits if line.startswith("Max address space")]
    assert line.split()[3:5] == [str(symbolic_worker.MEMORY_BYTES)] * 2


@pytest.mark.parametrize("answer", [r"\sqrt{" + "9" * 10_000 + "}", "9" * 10_000, "(" * 9_999])
def test_ten_kilobytes_of_digits_or_brackets_neither_hang_nor_kill(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbolic_equality.equal(r"\sqrt{4}", r"\sqrt 4")
    monkeypatch.setattr(symbolic_equality, "TIMEOUT_SECONDS", 1.0)
    assert not symbolic_equality.equal(answer, r"\sqrt{3}")
    monkeypatch.undo()
    assert symbolic_equality.equal(r"\sqrt{12}", r"2\sqrt{3}")
