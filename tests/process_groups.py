"""Processes that run."""

import os
from contextlib import suppress

import psutil


def is_running(pid: int) -> bool:
    """Whether it has not ended; one that nobody waited for has."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def list_group(group: int) -> list[int]:
    """Those of a group."""
    pids = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and is_running(process.pid):
                pids.append(process.pid)
    return pids
