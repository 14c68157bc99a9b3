"""`python -m tests.gpu`: does it compute right, and fast enough, on this GPU? At most 10 minutes.

Random weights of Qwen3-0.6B's and Qwen2.5-1.5B's shapes; nothing is downloaded. The rows of each
part of `measurements.PARTS`, target beside measured, are written to tests/gpu/results.md as they
come, so that a cut loses nothing; an error ends its part.

`--dry-run`: the same on small models on the CPU; speeds are held to no target, and nothing is
written.
"""

import argparse
import gc
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import stages  # noqa: F401 - fixes threads and instructions before torch is imported

import torch  # isort: skip

from stages.models import compilation
from stages.models import device as devices
from tests.gpu import scales
from tests.gpu.measurements import PARTS, Measurement, Row

RESULTS = Path(__file__).with_name("results.md")
SPEED_UNITS = ("tokens/s", "%", "s", "ms")


def measure(*, dry: bool) -> Iterator[Row]:
    """Rows of all parts."""
    scale, device = scales.TINY if dry else scales.REAL, devices.setup(scales.COMPUTE)
    for part in PARTS:
        try:
            for row in part(scale, device):
                if dry and isinstance(row, Measurement) and row.unit in SPEED_UNITS:
                    yield replace(row, met=None)
                else:
                    yield row
        except Exception as error:  # noqa: BLE001 - the other parts go on
            yield f"{part.__name__} FAILED: {error!r}"
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    torch.set_autocast_enabled(device.type, False)


def format_report(head: str, rows: Sequence[Row]) -> str:
    """Table and texts, as markdown."""
    words = {True: "yes", False: "**no**", None: ""}
    lines = ["| what | measured | target | met |", "|---|---|---|---|"]
    for row in rows:
        if not isinstance(row, str):
            value = f"{row.value:,.4g}" if row.value < 1000 else f"{row.value:,.0f}"
            lines.append(f"| {row.name} | {value} {row.unit} | {row.target} | {words[row.met]} |")
    texts = [row for row in rows if isinstance(row, str)]
    return "\n\n".join(["# Last results", head, "\n".join(lines), *texts]) + "\n"


def main(*words: str) -> int:
    """Measure all parts; 1 where a target is missed or a part fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("--dry-run", action="store_true", help="small models on the CPU")
    dry, rows = parser.parse_args(words).dry_run, list[Row]()
    if dry:
        compilation.BACKEND, head = "eager", "A dry run on a CPU."
    else:
        head = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python "
        head += f"{platform.python_version()}, CUDA {torch.version.cuda}."
    for row in measure(dry=dry):
        rows.append(row)
        if not dry:
            RESULTS.write_text(format_report(head, rows), encoding="utf-8")
    sys.stdout.write(format_report(head, rows))
    failed = [row for row in rows if isinstance(row, str) and " FAILED" in row]
    return int(bool(failed) or any(getattr(row, "met", None) is False for row in rows))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
