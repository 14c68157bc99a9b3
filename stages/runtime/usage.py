"""Resource usage of a seed run: processor cores, memory and GPU memory, every ten seconds.

Freed memory is returned to the kernel just before, so that only memory in use is measured.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from stages.runtime import journal, process

SECONDS = 10.0
USAGE = "usage.jsonl"
MEGABYTE = 10**6


@contextmanager
def sampling(path: Path) -> Iterator[None]:
    """Context in which a thread samples this process and its children into a journal at `path`.

    A full disk costs the samples, not the run. A run of less than ten seconds has no file.
    """
    ended = threading.Event()

    def sample() -> None:
        cpu_seconds, clock, index = measure_cpu_seconds(), time.monotonic(), 0
        with suppress(OSError), journal.writing(path) as log:
            while not ended.wait(SECONDS):
                process.return_free_memory()
                before, begin = cpu_seconds, clock
                cpu_seconds, clock = measure_cpu_seconds(), time.monotonic()
                cores = max(0.0, cpu_seconds - before) / (clock - begin)
                log(index, {"cpu_cores": cores} | measure_memory())
                index += 1
        if not index:
            path.unlink(missing_ok=True)

    thread = threading.Thread(target=sample, name="usage", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measure_cpu_seconds() -> float:
    """Processor time so far of this process and its children, also of those that have ended."""
    times = psutil.Process().cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            of_child = child.cpu_times()
            total += of_child.user + of_child.system
    return total


def measure_memory() -> dict[str, float]:
    """Resident memory of this process and its children, and GPU memory that torch has reserved."""
    resident = psutil.Process().memory_info().rss
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            resident += child.memory_info().rss
    memory = {"memory_megabytes": resident / MEGABYTE}
    torch = sys.modules.get("torch")  # not imported: without it no GPU is in use
    if torch is not None and torch.cuda.is_initialized():
        memory["gpu_memory_megabytes"] = torch.cuda.memory_reserved() / MEGABYTE
    return memory
