"""Process of a stage: it ends at once when its work is done, and in time when asked to.

It is asked by SIGTERM (a preempted agent, a batch queue's warning), by Ctrl-C, by SIGHUP (its
terminal was closed), or by the end of its dvc. It stops within `SECONDS_TO_END`, and saves its
checkpoint within `SECONDS_TO_SAVE`; after that the kernel ends it, since Python cannot handle a
signal while a call into C hangs, such as a collective.
"""

import atexit
import ctypes
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil

from stages.runtime import terminal

PACKAGE = Path(__file__).parents[1]
PR_SET_PDEATHSIG = 1
KEPT_BYTES = {-3: 32 * 2**20, -1: 512 * 2**20}
"""glibc's M_MMAP_THRESHOLD, up to which a tensor is on the heap, and M_TRIM_THRESHOLD, up to which
the heap keeps freed memory. With the defaults the pages of every large activation are returned and
requested again, a tenth of the time of sampling. Weights of a real model are still returned."""
SHELLS = {"sh", "dash", "bash", "zsh", "fish", "ksh"}
SECONDS_TO_END, SECONDS_TO_SAVE = 10.0, 60.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STATUS = 128 + signal.SIGTERM
"""Exit status of a process that was asked to end."""
FLOW = "POSTTRAIN_FLOW"
"""Environment variable with the process id of the flow that started this process's dvc."""


def return_free_memory() -> None:
    """Return all free pages of the heap to the kernel.

    Otherwise memory in use fragments the freed activations of earlier steps, of other sizes, and
    the heap grows: with a model of 135 M parameters to 3.9 GiB in 9 steps of sampling and training,
    instead of 2.2.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # as mallopt
    if malloc_trim is not None:
        malloc_trim(0)


@contextmanager
def ending() -> Iterator[None]:
    """Context of a command, which ends the process at once after its body.

    It waits for threads and calls exit handlers, but does not free the million objects of torch and
    transformers, which takes a second. The same holds for a SystemExit (argparse, `Stopped`) and
    for a ValueError of this package, whose message is for the user and is shown without the
    traceback, which is in the run's failed.json. Any other error ends the interpreter as usual.
    Every message may quote a model's text, so it is escaped (`terminal.escape_output`).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it; macOS and musl do without
    if mallopt is not None:
        for name, value in KEPT_BYTES.items():
            mallopt(name, value)
    terminal.survive_lost_output()
    terminal.escape_output(sys.stderr)
    status = None
    try:
        yield
    except SystemExit as request:
        status = request.code
    except ValueError as error:
        if not is_for_users(error):
            raise
        status = "\n".join([f"Error: {error}", *getattr(error, "__notes__", [])])
    if not isinstance(status, int | None):  # a message, as for `sys.exit`
        if sys.stderr is not None:
            sys.stderr.write(f"{status}\n")
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the parent
            stream.flush()
    os._exit(status or 0)


def run(main: Callable[..., None]) -> None:
    """Call `main` with the words of the command line, and end the process (`ending`)."""
    with ending():
        main(*sys.argv[1:])


def is_for_users(error: ValueError) -> bool:
    """Whether code of this package raised the error, not a library or the interpreter."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and PACKAGE in Path(trace.tb_frame.f_code.co_filename).parents


dvc_of_work: psutil.Process | None = None
"""The dvc for which this process was forked (`runtime/fork_server`), which is not a parent."""


def find_dvc() -> psutil.Process | None:
    """The process of DVC that runs this one as a command, directly or by a shell, or None."""
    if dvc_of_work is not None:
        return dvc_of_work
    if "DVC_STAGE" not in os.environ:
        return None
    with suppress(psutil.Error):  # it has ended
        parent = psutil.Process().parent()
        if parent is not None and parent.name() in SHELLS:
            parent = parent.parent()
        # An orphan's parent is process 1, which in a container may be dvc.
        if parent is not None and (parent.pid != 1 or "dvc" in " ".join(parent.cmdline())):
            return parent
    return None


def die_with_dvc(stage: str) -> None:
    """Ask this process to end when the dvc that runs `stage` ends, or at once if it has ended.

    An orphaned process would keep writing into the outputs of its successor. A shell between the
    two may outlive dvc, so dvc itself is watched.
    """
    if os.environ.get("DVC_STAGE") != stage or not hasattr(os, "pidfd_open"):
        return
    dvc, end = find_dvc(), None
    if dvc is not None:
        with suppress(ProcessLookupError):
            end = os.pidfd_open(dvc.pid)
    if end is None:
        raise Stopped(STATUS)
    process = os.getpid()

    def wait() -> None:
        select.select([end], [], [])
        os.kill(process, signal.SIGTERM)

    threading.Thread(target=wait, name="watch-dvc", daemon=True).start()


def find_flow_or_dvc() -> psutil.Process | None:
    """Process whose stages share a fork server: the flow that started the dvc, else the dvc.

    None for a program that calls DVC as a library, which may run for days.
    """
    dvc = find_dvc()
    if dvc is None:
        return None
    with suppress(psutil.Error):
        for parent in dvc.parents() if FLOW in os.environ else ():
            if str(parent.pid) == os.environ[FLOW]:
                return parent
        if "dvc" in [Path(word).name for word in dvc.cmdline()]:
            return dvc
    return None


def is_dvc_quiet() -> bool:
    """Whether the dvc that runs this stage is quiet (`dvc repro -q`)."""
    with suppress(psutil.Error):
        dvc = find_dvc()
        return dvc is not None and bool({"-q", "--quiet"} & set(dvc.cmdline()))
    return False


def die_with_parent(by: signal.Signals = signal.SIGKILL, parent: int | None = None) -> int:
    """Have the kernel signal this process when its parent ends; returns the parent's id.

    From here on a forked process handles stop signals itself. `parent`: id of the parent after
    `os.fork`, which multiprocessing does not know.
    """
    _stop_request.process, forked_by = os.getpid(), multiprocessing.parent_process()
    parent = parent or (forked_by and forked_by.pid) or os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, by, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os.kill(os.getpid(), by)
    return parent


class Stopped(SystemExit):
    """This process was asked to end; see `listening`."""


@dataclass
class _StopRequest:
    process: int = field(default_factory=os.getpid)
    requested: bool = False


_stop_request = _StopRequest()


@contextmanager
def listening() -> Iterator[None]:
    """Context in which a signal raises `Stopped`, once; in a fork, after `die_with_parent`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _stop_request.process = os.getpid()
    # Under nohup, SIGHUP is ignored.
    numbers = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """Ignore stop signals: the parent process ends this one."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    if os.getpid() != _stop_request.process:  # an error would run cleanup of the parent's work
        os._exit(STATUS)
    if _stop_request.requested:
        return
    _stop_request.requested = True
    terminal.erase()
    signal.setitimer(signal.ITIMER_REAL, SECONDS_TO_END)  # SIGALRM, unhandled, ends the process
    raise Stopped(STATUS)


def extend(seconds: float) -> None:
    """If this process was asked to end, give it `seconds` from now."""
    if _stop_request.requested:
        signal.setitimer(signal.ITIMER_REAL, seconds)


def check_stop() -> None:
    """Raise `Stopped` again if this process was asked to end.

    Call it after foreign code, which may have caught `Stopped`, as a bare `except:` does, so that
    its return value is not valid.
    """
    if _stop_request.requested:
        raise Stopped(STATUS)
