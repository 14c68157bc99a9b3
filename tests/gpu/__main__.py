"""`python -m tests.gpu`: does it compute right, and fast enough, on this GPU? At most 10 minutes.

Random weights of Qwen3-0.6B's and Qwen2.5-1.5B's shapes; nothing is downloaded. Prints a table,
target beside measured, and writes it to tests/gpu/results.md, which is kept in the repository.
Without a GPU, or with `--pretend`: the same functions on small models on the CPU, whose speeds are
held to no target; written only where `--write` says so.
"""

import argparse
import gc
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import stages  # noqa: F401 - fixes threads and instructions before torch is imported

RESULTS = Path(__file__).with_name("results.md")
SPEED_UNITS = ("tokens/s", "%")


def measure(*, pretend: bool) -> Iterator:
    """The rows of the table as they are found."""
    import torch

    from stages.models import device as devices
    from tests.gpu import scales
    from tests.gpu.measurements import MEASUREMENTS

    device = devices.setup(scales.COMPUTE)
    scale = scales.TINY if pretend else scales.REAL
    try:
        for function in MEASUREMENTS:
            start = time.perf_counter()
            for result in function(scale, device):
                speed = pretend and result.unit in SPEED_UNITS
                yield replace(result, met=None) if speed else result
            print(f"{function.__name__}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    finally:
        torch.set_autocast_enabled(device.type, False)


def table(rows: list) -> str:
    """As markdown."""
    words = {True: "yes", False: "**no**", None: ""}
    lines = [
        f"| {row.name} | {row.value:,.4g} {row.unit} | {row.target} | {words[row.met]} |"
        if row.value < 1000
        else f"| {row.name} | {row.value:,.0f} {row.unit} | {row.target} | {words[row.met]} |"
        for row in rows
    ]
    return "\n".join(["| what | measured | target | met |", "|---|---|---|---|", *lines])


def machine(*, pretend: bool) -> str:
    """What it was measured on."""
    import torch

    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    if pretend:
        return (
            f"**No GPU has run this yet.** The pretended form on a CPU ({versions}): small models, "
            f"whose speeds say nothing."
        )
    return f"{torch.cuda.get_device_name()}, {versions}, driver CUDA {torch.version.cuda}."


def main() -> int:
    """Print the table; 1 where a target is missed."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("--pretend", action="store_true", help="without a GPU: small models")
    parser.add_argument("--write", action="store_true", help="results.md in the pretended form too")
    options = parser.parse_args()
    pretend = options.pretend or not torch.cuda.is_available()
    rows = list(measure(pretend=pretend))
    report = f"# Last results\n\n{machine(pretend=pretend)}\n\n{table(rows)}\n"
    print(report)
    if options.write or not pretend:
        RESULTS.write_text(report, encoding="utf-8")
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
