"""Exclusive use of GPUs: a file lock for each device, held by the process that computes.

Small models leave most of a large GPU idle: with POSTTRAIN_SEEDS_PER_GPU=3 a device has three
locks, and at most three processes compute on it. The kernel frees a lock once the process and the
ranks that it forked have ended, in whatever way (a lock of filelock would be free while a rank
still computes). `dvc repro` and the flows respect the locks.
"""

import fcntl
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.runtime.checkout import locate_checkout
from stages.runtime.outputs import PIPE

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_TRIES = 0.5
SEEDS_PER_GPU = "POSTTRAIN_SEEDS_PER_GPU"
"""Number of processes that may compute on a GPU at the same time, 1 by default. It is not a
parameter, since it changes no bit of the outputs."""


def devices(proc: Path = Path("/proc/driver/nvidia/gpus"), dev: Path = Path("/dev")) -> list[str]:
    """The GPUs that this process may use, by CUDA_VISIBLE_DEVICES; found without torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        # CUDA ignores everything from the first invalid name on.
        stop = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))
        return names[:stop]
    number = len(list(proc.glob("*"))) if proc.is_dir() else 0
    # Containers often hide /proc/driver, but always have the device nodes.
    number = number or len([node for node in dev.glob("nvidia*") if node.name[6:].isdigit()])
    return [str(index) for index in range(number)]


@contextmanager
def take(number: int = 1) -> Iterator[list[str]]:
    """Wait for `number` free GPUs, hold them, and make them the only visible ones.

    Yields their names; none if `number` is 0 or the machine has no GPU. A ValueError if it has
    GPUs, but fewer.
    """
    names = devices() if number else []
    if not names:
        yield []
        return
    if len(names) < number:
        raise ValueError(
            f"expected {number} GPUs, one for each of num_processes and POSTTRAIN_SAMPLERS, found "
            f"{len(names)}: lower num_processes, or set POSTTRAIN_SAMPLERS=0."
        )
    torch = sys.modules.get("torch")
    assert torch is None or not torch.cuda.is_initialized(), (
        "a GPU slot must be taken before CUDA starts: it would not be obeyed"
    )
    names_held = _wait(names, number)
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names_held)
    try:
        yield list(names_held)
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]
        os.environ |= {} if before is None else {"CUDA_VISIBLE_DEVICES": before}
        for descriptor in names_held.values():
            os.close(descriptor)


def show(place: int) -> None:
    """Make the held GPU at `place` the only visible one, before CUDA starts."""
    os.environ["CUDA_VISIBLE_DEVICES"] = devices()[place]


def seeds_per_gpu() -> int:
    """Value of `SEEDS_PER_GPU`; a ValueError if it is not a whole number from 1 on."""
    value = os.environ.get(SEEDS_PER_GPU, "1")
    if not value.isdecimal() or int(value) < 1:
        raise ValueError(
            f"{SEEDS_PER_GPU}: expected a whole number from 1 on, found {value!r}. Set one, or "
            f"unset it."
        )
    return int(value)


def _wait(names: list[str], number: int) -> dict[str, int]:
    """Wait for the emptiest devices: their names, with the descriptor of a place held on each."""
    folder = locate_checkout() / PIPE / "gpu"
    folder.mkdir(parents=True, exist_ok=True)
    num_places = seeds_per_gpu()
    slots: dict[str, int] = {}
    is_logged = False
    # One process at a time collects devices: two with half of them each would wait for ever.
    with (folder / "queue.lock").open("a") as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)
        while True:
            free = {
                name: _lock_places(folder, name, num_places) for name in names if name not in slots
            }
            for name in sorted(free, key=lambda name: len(free[name]), reverse=True):
                places = free[name]
                if places and len(slots) < number:
                    slots[name] = places.pop(0)
                for descriptor in places:
                    os.close(descriptor)
            if len(slots) == number:
                return slots
            if not is_logged:
                logger.info("waiting for %d of %d GPUs (locks in %s)", number, len(names), folder)
                is_logged = True
            time.sleep(SECONDS_BETWEEN_TRIES)


def _lock_places(folder: Path, name: str, number: int) -> list[int]:
    """Lock the free places on a device; returns their descriptors."""
    descriptors = []
    for place in range(number):
        descriptor = os.open(folder / f"{name}-{place}.lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            descriptors.append(descriptor)
    return descriptors
