"""Cost of plan and prepare_data by rows: `python -m tests.benchmarks.preparation`."""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipeline_copy import PipelineCopy, make_environment

NUMBERS = (10_000, 100_000, 1_000_000)


def write_rows(path: Path, number: int) -> None:
    """Problems that are no near copies of each other, with worked solutions, of 200 bytes each."""
    drawn = random.Random(0)
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(20_000)]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(number):
            first, second = drawn.randrange(1000), drawn.randrange(1000)
            story = " ".join(drawn.choices(words, k=8))
            question = f"Ann has {first} {story} and buys {second} more. How many has she now?"
            answer = f"She has {first} + {second} = {first + second}.\n#### {first + second}"
            file.write(json.dumps({"question": question, "answer": answer}) + "\n")


def measure(folder: Path, words: list[str]) -> tuple[float, float]:
    """CPU seconds and largest memory in GiB of a command and its children."""
    process = subprocess.Popen([sys.executable, *words], cwd=folder, env=make_environment())
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, words
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def take_rows(params: dict[str, Any], _: Any) -> None:
    """Read the file; all other parameters are the default's."""
    params["data"]["source"] = {"path": "data/raw/rows.jsonl"}


def main() -> None:
    """Print a table."""
    print("| rows | command | CPU, s | memory, GiB |", "|---|---|---|---|", sep="\n")
    for number in NUMBERS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            copy = PipelineCopy(folder, take_rows)
            write_rows(copy.path / "data/raw/rows.jsonl", number)
            plan = measure(folder, ["-m", "stages.plan", "--default", "params.yaml"])
            copy.repro("plan", "trace_code")
            prepare = measure(folder, ["-m", "stages.prepare_data"])
            for command, (seconds, memory) in {"plan": plan, "prepare_data": prepare}.items():
                print(f"| {number:,} | {command} | {seconds:.1f} | {memory:.1f} |", flush=True)


if __name__ == "__main__":
    main()
