"""`python -m tests.gpu`: does it compute right, and fast enough, on this GPU? At most 12 minutes.

Random weights of Qwen3-0.6B's and Qwen2.5-1.5B's shapes; nothing is downloaded. Each part of
`measurements.PARTS` runs in a process of its own, until its limit. Its rows, target beside
measured, are written to tests/gpu/results.md as they come, so that a cut loses nothing.

`--dry-run`: the same functions on small models on the CPU, in this process; speeds are held to no
target, and nothing is written. `--part NAME`: that part alone, its rows as lines of JSON.
"""

import argparse
import compileall
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import stages  # noqa: F401 - fixes threads and instructions before torch is imported

RESULTS = Path(__file__).with_name("results.md")
SPEED_UNITS = ("tokens/s", "%", "s", "ms")
DRY = 10
"""Times the limit that a part may take on a CPU, which other work may share."""
COMPILED = ("torch", "transformers", "peft", "vllm")
"""Packages whose bytecode is written first: else each process would translate them."""


def measure(name: str, *, dry: bool) -> Iterator[Any]:
    """Rows of a part, in this process."""
    import torch

    from stages.models import compilation
    from stages.models import device as devices
    from tests.gpu import scales
    from tests.gpu.measurements import PARTS

    part = PARTS[name][0]
    if dry:
        compilation.BACKEND = "eager"
    if name == "two_gpus":  # whose forked processes set up a device each
        device = torch.device("cpu" if dry else "cuda")
    else:
        device = devices.setup(scales.COMPUTE)
    try:
        for row in part(scales.TINY if dry else scales.REAL, device):
            is_speed = dry and not isinstance(row, str) and row.unit in SPEED_UNITS
            yield replace(row, met=None) if is_speed else row
    finally:
        torch.set_autocast_enabled(device.type, False)


def measure_apart(name: str, limit: int, *, dry: bool) -> Iterator[Any]:
    """Rows of a part, in a process that is ended after `limit` seconds."""
    from tests.gpu.measurements import Measurement

    command = [sys.executable, "-m", "tests.gpu", "--part", name, *["--dry-run"] * dry]
    limit *= DRY if dry else 1
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            ["timeout", "--signal=KILL", str(limit), *command], stdout=subprocess.PIPE,
            stderr=errors, text=True,
        )  # fmt: skip
        for line in process.stdout or ():
            if line.startswith("{"):
                content = json.loads(line)
                yield content["text"] if "text" in content else Measurement(**content)
        seconds = time.perf_counter() - start
        if process.wait():
            errors.seek(0)
            last = " | ".join(errors.read().strip().splitlines()[-3:])
            yield f"{name} FAILED after {seconds:.0f} of {limit} s: {last}"
    sys.stderr.write(f"{name}: {seconds:.0f} s\n")


def format_report(head: str, rows: Sequence[Any]) -> str:
    """Table and texts, as markdown."""
    words = {True: "yes", False: "**no**", None: ""}
    lines = ["| what | measured | target | met |", "|---|---|---|---|"]
    for row in rows:
        if not isinstance(row, str):
            value = f"{row.value:,.4g}" if row.value < 1000 else f"{row.value:,.0f}"
            lines.append(f"| {row.name} | {value} {row.unit} | {row.target} | {words[row.met]} |")
    texts = [f"```\n{row}\n```" for row in rows if isinstance(row, str)]
    return "\n\n".join(["# Last results", head, "\n".join(lines), *texts]) + "\n"


def describe_machine() -> str:
    """GPU and versions, asked in another process: this one must not use a GPU."""
    code = (
        "import platform, torch; print(torch.cuda.get_device_name(), 'torch', torch.__version__, "
        "'Python', platform.python_version(), 'CUDA', torch.version.cuda, sep=', ')"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout  # noqa: PLW1510


def main(words: Sequence[str] | None = None) -> int:
    """Measure all parts, or one; 1 where a target is missed or a part fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("--dry-run", action="store_true", help="small models on the CPU")
    parser.add_argument("--part", help="one part, its rows as JSON")
    options = parser.parse_args(words)
    dry = options.dry_run
    if options.part:
        for row in measure(options.part, dry=dry):
            sys.stdout.write(
                json.dumps({"text": row} if isinstance(row, str) else asdict(row)) + "\n"
            )
            sys.stdout.flush()
        return 0
    if not dry:
        for package in COMPILED:
            if (spec := importlib.util.find_spec(package)) and spec.origin:
                compileall.compile_dir(Path(spec.origin).parent, quiet=2, workers=0)
    from tests.gpu.measurements import PARTS

    head = "A dry run on a CPU." if dry else describe_machine().strip()
    rows: list[Any] = []
    for name, (_, limit) in PARTS.items():
        for row in measure(name, dry=True) if dry else measure_apart(name, limit, dry=dry):
            rows.append(row)
            if not dry:
                RESULTS.write_text(format_report(head, rows), encoding="utf-8")
    sys.stdout.write(format_report(head, rows))
    failed = [row for row in rows if isinstance(row, str) and " FAILED " in row]
    return int(bool(failed) or any(getattr(row, "met", None) is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
