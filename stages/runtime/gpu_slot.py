"""One GPU for one process: a file lock for each device, held by the process that computes.

The kernel frees it when the process ends, however that ends; `dvc repro` and the flows respect it.
"""

import fcntl
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.runtime.identity import PIPE

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_TRIES = 0.5


def devices(proc: Path = Path("/proc/driver/nvidia/gpus"), dev: Path = Path("/dev")) -> list[str]:
    """The GPUs this process may use, as CUDA_VISIBLE_DEVICES names them; found without torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        # CUDA ignores everything from the first invalid name on.
        stop = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))
        return names[:stop]
    found = len(list(proc.glob("*"))) if proc.is_dir() else 0
    # Containers often hide /proc/driver but always have the device nodes.
    found = found or len([node for node in dev.glob("nvidia*") if node.name[6:].isdigit()])
    return [str(index) for index in range(found)]


@contextmanager
def take(*, wanted: bool = True) -> Iterator[str | None]:
    """Wait for a free GPU, make it the only visible one, hold it; None: there is none."""
    names = devices() if wanted else []
    if not names:
        yield None
        return
    torch = sys.modules.get("torch")
    assert torch is None or not torch.cuda.is_initialized(), (
        "a GPU slot must be taken before CUDA starts: it would not be obeyed"
    )
    name, descriptor = _wait(names)
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = name
    try:
        yield name
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]
        os.environ |= {} if before is None else {"CUDA_VISIBLE_DEVICES": before}
        os.close(descriptor)


def _wait(names: list[str]) -> tuple[str, int]:
    folder = PIPE / "gpu"
    folder.mkdir(parents=True, exist_ok=True)
    told = False
    while True:
        for name in names:
            descriptor = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return name, descriptor
        if not told:
            logger.info("waiting for one of %d GPUs (locks in %s)", len(names), folder)
            told = True
        time.sleep(SECONDS_BETWEEN_TRIES)
