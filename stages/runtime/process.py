"""A stage as a process: it ends at once when its work is done, and in time when it is asked to.

It is asked by SIGTERM (a preempted agent, a batch queue's warning), by Ctrl-C, by SIGHUP (its
terminal is gone), or by the end of its dvc. It stops within `SECONDS_TO_END`, and writes what a
later start goes on from within `SECONDS_TO_SAVE`; then the kernel ends it. A call into C that
hangs, such as a collective, keeps Python from hearing of it.
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
"""glibc's M_MMAP_THRESHOLD, up to which a tensor is of the heap, and M_TRIM_THRESHOLD, up to which
the heap keeps what was freed. Left alone, the pages of every large activation are given back and
asked for again, a tenth of the time of sampling. Weights of a real model are given back as ever."""
SHELLS = {"sh", "dash", "bash", "zsh", "fish", "ksh"}
SECONDS_TO_END, SECONDS_TO_SAVE = 10.0, 60.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STATUS = 128 + signal.SIGTERM
"""The exit status of a process that was asked to end."""
FLOW = "POSTTRAIN_FLOW"
"""Variable with the process id of the flow that started this process's dvc."""


def return_free_memory() -> None:
    """Give the kernel the pages of the heap that hold nothing, wherever they are in it.

    Otherwise what is in use stands between the freed activations of earlier steps, of other sizes,
    and the heap grows: with a model of 135 M parameters to 3.9 GiB in 9 steps of sampling and
    training, in place of 2.2.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # as mallopt
    if malloc_trim is not None:
        malloc_trim(0)


@contextmanager
def ending() -> Iterator[None]:
    """A command: when the block is done, so is the process, at once.

    Threads are waited for and exit handlers called. The million objects that torch and transformers
    made are not taken apart, which takes a second. The same holds for a SystemExit (argparse,
    `Stopped`) and for a ValueError that this package raises: it is a sentence for the user, shown
    without the traceback, which is in the run's failed.json. Any other error takes the
    interpreter's way out. Every message may quote what a model wrote: it is escaped
    (`terminal.escape_output`).
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
    if not isinstance(status, int | None):  # a message, as `sys.exit` takes it
        if sys.stderr is not None:
            sys.stderr.write(f"{status}\n")
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by who started it
            stream.flush()
    os._exit(status or 0)


def run(main: Callable[..., None]) -> None:
    """Call `main` with the words of the command line, and end the process (`ending`)."""
    with ending():
        main(*sys.argv[1:])


def is_for_users(error: ValueError) -> bool:
    """Whether this package's own code raised it, and not a library or the interpreter."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and PACKAGE in Path(trace.tb_frame.f_code.co_filename).parents


dvc_of_work: psutil.Process | None = None
"""The dvc for which this process was forked (`runtime/fork_server`): none of its parents."""


def find_dvc() -> psutil.Process | None:
    """The process of DVC that runs this one as a command, itself or by a shell; None: none does."""
    if dvc_of_work is not None:
        return dvc_of_work
    if "DVC_STAGE" not in os.environ:
        return None
    with suppress(psutil.Error):  # it has ended
        parent = psutil.Process().parent()
        if parent is not None and parent.name() in SHELLS:
            parent = parent.parent()
        # Who lost its parent has process 1 for one, which in a container may be dvc.
        if parent is not None and (parent.pid != 1 or "dvc" in " ".join(parent.cmdline())):
            return parent
    return None


def die_with_dvc(stage: str) -> None:
    """Have this process asked to end when dvc ends, which runs `stage`; at once if it has ended.

    An orphaned process would keep writing into the outputs of its successor. A shell that did not
    replace itself by the command outlives dvc, so dvc itself is watched.
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
    """The process whose stages share a fork server: the flow that started the dvc, else the dvc.

    None for a program that calls DVC as a library: it may live on for days.
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
    """Have the kernel send this process a signal when its parent ends; the parent's id.

    If it was forked, its own work begins here: what its parent was doing is no more its own.
    `parent`: where `os.fork` was called, of which multiprocessing does not know.
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
    """Meanwhile a signal raises `Stopped`, once; where it is forked, after `die_with_parent`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _stop_request.process = os.getpid()
    # Under nohup the end of the terminal is no reason to end.
    numbers = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """Leave it to the process that started this one to end it."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    if os.getpid() != _stop_request.process:  # an error would unwind its parent's work, and tidy up
        os._exit(STATUS)
    if _stop_request.requested:
        return
    _stop_request.requested = True
    terminal.erase()
    signal.setitimer(signal.ITIMER_REAL, SECONDS_TO_END)  # SIGALRM, unhandled, ends the process
    raise Stopped(STATUS)


def extend(seconds: float) -> None:
    """Give this process, if it was asked to end, so many seconds from now."""
    if _stop_request.requested:
        signal.setitimer(signal.ITIMER_REAL, seconds)


def check_stop() -> None:
    """Raise `Stopped` again if this process was asked to end.

    To be called after code of others, which may have caught `Stopped`, as a bare `except:` does.
    Then the value that it returned is no answer.
    """
    if _stop_request.requested:
        raise Stopped(STATUS)
