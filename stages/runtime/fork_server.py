"""Fork server: one process from which the stages of a `dvc repro`, or of a flow, are forked.

torch and transformers take a second each to import, and most stages need both. So one process
imports every entry point, and stays:

    stage    `python -m stages train_grpo ...`: waits, and ends with its worker's exit status
    server   imports once, forks, sends each stage its worker's exit status; ends with the flow, or,
             if no flow started it, with dvc
    worker   the server's fork, with the words, variables, streams and process group of the stage

The stage passes signals to end on to the worker. If the stage is killed, so is the worker; if the
server is killed, its workers are asked to end. The server's address is a digest of all that a fork
inherits from it: variables, folder, interpreter, code. A stage with other code finds no server.
"""

import fcntl
import gc
import hashlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

import psutil

import stages
from stages.runtime import process, terminal
from stages.runtime.outputs import PIPE

OF_THE_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
OF_ROUNDING = frozenset({"POSTTRAIN_ROUNDING", *stages.INSTRUCTIONS})
"""Variables by which a process adopts the rounding of params.yaml; a worker has the server's."""
CREDENTIALS = struct.Struct("3i")
STREAMS = (0, 1, 2)


class _Work(NamedTuple):
    """A worker and its stage."""

    worker: int
    worker_end: int
    """Descriptor, readable once the worker (`stage_end`: stage) has ended (pidfd_open(2))."""
    stage_end: int
    connection: socket.socket


def work_in_fork(*, imports_much: bool) -> None:
    """Do the work of this process in a fork of the server, and end with it; return if that fails.

    `imports_much`: whether the work needs the server's imports. If so, a server is launched if
    there is none, and the fork adopts the rounding of params.yaml, as this process would. Otherwise
    the work is done in a server only if there is one, with this process's rounding.
    """
    dvc, owner = process.find_dvc(), process.find_flow_or_dvc()
    if dvc is None or owner is None or not hasattr(os, "pidfd_open"):  # only Linux has it
        return
    address = locate(owner)
    server = _connect(address)
    if server is None and imports_much:
        PIPE.mkdir(exist_ok=True)
        with (PIPE / "server.lock").open("a") as lock:  # one of two stages that start together
            fcntl.flock(lock, fcntl.LOCK_EX)
            server = _connect(address)
            if server is None:
                command = [sys.executable, "-m", "stages", "--serve", str(owner.pid)]
                # An error of the imports will be raised by the work in this process.
                subprocess.run(command, capture_output=True, check=False)
                server = _connect(address)
    if server is None:
        return
    caught = [number for number in process.SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    request = {
        "command": sys.orig_argv, "argv": sys.argv, "environment": dict(os.environ),
        "dvc": dvc.pid, "group": os.getpgid(0), "caught": caught,
        "rounding": None if imports_much else stages.ROUNDING,
    }  # fmt: skip
    with server, server.makefile("rw", encoding="utf-8") as stream:
        signal.pthread_sigmask(signal.SIG_BLOCK, caught)  # until there is a worker to pass them to
        worker = None
        with suppress(OSError):  # the server ended just now, or a stream of this process is closed
            socket.send_fds(server, [b"\n"], STREAMS)
            stream.write(f"{json.dumps(request)}\n")
            stream.flush()
            worker = _read_message(stream).get("process")
        if worker is not None:
            process.die_with_parent(signal.SIGTERM)
            for number in caught:
                signal.signal(number, lambda number, _: _send(worker, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, caught)
        if worker is not None:
            _end_with(_read_message(stream).get("status"), worker)


def locate(owner: psutil.Process) -> str:
    """The address of the server that can work for this process; it vanishes with the server.

    Its digest includes size and time of the files of `stages`, also of texts that modules read:
    after an edit, even one during the imports, the address is another.
    """
    state = Path(f"/proc/{owner.pid}/stat").read_text(encoding="utf-8")
    # Process ids are reused. psutil's time of a start may differ by a second between processes.
    start = state.rpartition(")")[2].split()[19]
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DVC_") and name not in OF_THE_SHELL | OF_ROUNDING
    }
    code = {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(Path(stages.__file__).parent.rglob("*"))
        if path.suffix in (".py", ".yaml", ".j2") and path.is_file()  # an editor's lock is not
    }
    content = [os.getuid(), owner.pid, start, sys.executable, str(Path.cwd()), variables, code]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"\0posttrain-{digest}"


def serve(
    owner: int, import_all: Callable[[], object], import_more: Callable[[], object]
) -> list[str]:
    """Serve stages; returns, in each fork of this process, the words of a stage.

    The process that called this ends when the server is ready for stages.

    Args:
        owner: Process id of the flow or dvc.
        import_all: Imports the entry points.
        import_more: Imports their late imports, while the first stage works.
    """
    before = dict(os.environ)
    gc.disable()  # searching the million objects of the imports for garbage takes a second
    address = None
    with suppress(psutil.Error):  # the owner has ended
        address = locate(psutil.Process(owner))  # before the imports
    import_all()
    if address is None:
        sys.exit(0)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(address)
        listener.listen()
        owner_end = os.pidfd_open(owner)
    except OSError:  # the owner has ended, or has a server
        sys.exit(0)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork():
        os._exit(0)
    process.ignore()  # this ends with the owner
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in STREAMS:  # else a reader of the output would wait for this process
        os.dup2(null, stream)
    server, is_complete, works = os.getpid(), False, list[_Work]()
    while True:
        gc.freeze()  # else each fork would copy the memory that the collector touches
        ends = [end for work in works for end in (work.worker_end, work.stage_end)]
        ready, _, _ = select.select([listener, owner_end, *ends], [], [])
        if owner_end in ready:
            os._exit(0)
        works = [work for work in works if not _has_ended(work, ready)]
        if listener not in ready:
            continue
        connection, _ = listener.accept()
        try:
            worker = os.fork()
        except OSError:  # no memory, or no process id: the stage works without a fork
            connection.close()
            continue
        if worker:
            try:
                stage_end = os.pidfd_open(_peer_of(connection)[0])
            except ProcessLookupError:  # the stage was killed just now
                os.kill(worker, signal.SIGKILL)
                os.waitpid(worker, 0)
                continue
            works.append(_Work(worker, os.pidfd_open(worker), stage_end, connection))
            if not is_complete:
                with suppress(Exception):  # the work that needs the import raises the error again
                    import_more()
                is_complete = True
            continue
        try:
            listener.close()
            os.close(owner_end)
            for work in works:  # other stages wait for the end of their connections
                _close(work)
            variables = os.environ.items()
            imported = {name: v for name, v in variables if before.get(name) != v}
            return _become_worker(connection, server, imported)
        except BaseException:  # noqa: BLE001 - the stage has ended: nobody would read the error
            os._exit(1)


def _has_ended(work: _Work, ready: Container[Any]) -> bool:
    """Whether a worker has ended, which its stage is told; kill it first if the stage has ended."""
    if work.worker_end not in ready:
        if work.stage_end not in ready:
            return False
        os.kill(work.worker, signal.SIGKILL)
    _, status = os.waitpid(work.worker, 0)
    with suppress(OSError):
        _write_message(work.connection, {"status": os.waitstatus_to_exitcode(status)})
    _close(work)
    return True


def _close(work: _Work) -> None:
    work.connection.close()
    os.close(work.worker_end)
    os.close(work.stage_end)


def _become_worker(stage: socket.socket, server: int, imported: Mapping[str, str]) -> list[str]:
    """The words of a stage, after this fork has adopted its surroundings; else ends this fork.

    `imported`: variables that the server's imports set.
    """
    _, descriptors, _, _ = socket.recv_fds(stage, 1, len(STREAMS))
    with stage.makefile("r", encoding="utf-8") as stream:
        request = _read_message(stream)
    is_ours = _peer_of(stage)[1] == os.getuid() and len(descriptors) == len(STREAMS)
    if not is_ours or request["rounding"] not in (None, stages.ROUNDING):
        os._exit(0)
    for number in request["caught"]:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, default)
    process.die_with_parent(signal.SIGTERM, parent=server)
    os.setpgid(0, request["group"])
    process.dvc_of_work = psutil.Process(request["dvc"])
    # Before any work: without this message the stage works without a fork.
    _write_message(stage, {"process": os.getpid()})
    stage.close()
    for stream, descriptor in zip(STREAMS, descriptors, strict=True):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    rounding = {name: os.environ[name] for name in OF_ROUNDING & os.environ.keys()}
    of_stage = {k: v for k, v in request["environment"].items() if k not in OF_ROUNDING}
    os.environ.clear()
    os.environ.update({**of_stage, **imported, **rounding})
    sys.argv, sys.orig_argv = request["argv"], request["command"]
    gc.enable()
    return sys.argv[1:]


def _connect(address: str) -> socket.socket | None:
    """The connection to the server at an address; None: this user has none there."""
    server = socket.socket(socket.AF_UNIX)
    with suppress(OSError):
        server.connect(address)
        if _peer_of(server)[1] == os.getuid():
            return server
    server.close()
    return None


def _peer_of(connection: socket.socket) -> tuple[int, ...]:
    """Ids of process, user and group at the other end."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return CREDENTIALS.unpack(content)


def _write_message(connection: socket.socket, message: Mapping[str, int]) -> None:
    connection.sendall(f"{json.dumps(message)}\n".encode())


def _read_message(stream: TextIO) -> dict[str, Any]:
    """The next message; an empty one if the other process has ended, perhaps while it wrote."""
    with suppress(OSError, ValueError):
        return json.loads(stream.readline() or "{}")
    return {}


def _send(worker: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(worker, number)


def _end_with(status: int | None, worker: int) -> NoReturn:
    """End this process as the worker ended: with its exit status, or by the signal -status.

    `status` None: the server was killed, and the kernel has asked the worker to end.
    """
    if status is None:
        with suppress(ProcessLookupError):
            select.select([os.pidfd_open(worker)], [], [])
        status = process.STATUS
    terminal.erase()  # lines of a worker that was killed
    if status < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
