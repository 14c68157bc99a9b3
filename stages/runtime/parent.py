"""A stage dies with the dvc that started it.

An orphan would go on writing into the outputs of its successor.
"""

import ctypes
import os
import select
import signal
import threading

import psutil

PR_SET_PDEATHSIG = 1
SHELLS = {"sh", "dash", "bash", "zsh", "fish", "ksh"}


def die_with_dvc(stage: str) -> None:
    """Have the kernel kill this process when its parent ends.

    Only where dvc runs `stage` and the system is Linux.
    """
    if os.environ.get("DVC_STAGE") != stage or not hasattr(os, "pidfd_open"):
        return
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    process = psutil.Process(parent)
    if process.name() in SHELLS:
        # A shell that did not replace itself by the command outlives dvc: watch dvc itself.
        _watch(process.ppid())


def _watch(pid: int) -> None:
    descriptor = os.pidfd_open(pid)

    def wait() -> None:
        select.select([descriptor], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="watch-dvc", daemon=True).start()
