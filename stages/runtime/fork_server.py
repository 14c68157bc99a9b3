"""Fork server: the stages of a `dvc repro`, or of a flow, are forked from a process with torch.

The check of the plan imports every entry point, which takes most of a stage's start. The process
that has done it does the work of each later `python -m stages` in a fork: with the words,
variables, streams and process group of that process, which passes signals on, waits, and ends with
the same exit status. When one of the two is killed, so is the other. A stage for which the server
has another environment, folder or code starts by itself, as does one without a server. The server
stays until its workers and its owner have ended: the flow, or the dvc where no flow started it.
"""

import json
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn, TextIO

import psutil

import stages
from stages.runtime import process

OF_THE_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
OF_ROUNDING = frozenset({"POSTTRAIN_ROUNDING", *stages.INSTRUCTIONS})
"""Variables by which a process adopts the rounding of params.yaml; a fork has the server's."""
CREDENTIALS = struct.Struct("3i")
"""Process, user and group at the other end of a socket."""
NUM_STREAMS = 3
REQUEST_SECONDS = 5.0
"""A process that was stopped while it asked would hold up all others."""
Files = dict[str, tuple[int, int]]
"""Path -> size and time of change."""


class StateBeforeImports(NamedTuple):
    """What a process had before it imported the entry points.

    An edit that comes later, also while they are imported, has another time than in `files`.
    """

    environment: dict[str, str]
    files: Files


def look_before() -> StateBeforeImports:
    """The variables, and the files of `stages`, as they are; to be called before the imports."""
    package = Path(stages.__file__).parent
    return StateBeforeImports(dict(os.environ), _describe(map(str, package.rglob("*.py"))))


def work_in_fork(*, is_rounded: bool = True) -> None:
    """Have the server do the work of this process, and end as it ends; return if it cannot.

    `is_rounded`: whether the work keeps the rounding of this process. Otherwise it adopts that of
    params.yaml, as the server has.
    """
    dvc, owner = process.find_dvc(), process.find_flow_or_dvc()
    if dvc is None or owner is None:
        return
    with _connect(owner) as server:
        if server is None:
            return
        signals = _PassedSignals()
        request = {
            "program": sys.executable, "command": sys.orig_argv, "argv": sys.argv,
            "environment": dict(os.environ), "folder": str(Path.cwd()), "dvc": dvc.pid,
            "group": os.getpgid(0), "ignored": signals.ignored,
            "rounding": stages.ROUNDING if is_rounded else None,
        }  # fmt: skip
        stream = server.makefile("rw", encoding="utf-8")
        with signals.caught():
            with suppress(OSError):  # it ended just now
                socket.send_fds(server, [b"\n"], [*range(NUM_STREAMS)])
                stream.write(f"{json.dumps(request)}\n")
                stream.flush()
            if worker := _read_message(stream).get("process"):
                process.die_with_parent(signal.SIGTERM)
                signals.pass_to(worker)
                _end_with(_read_message(stream).get("status"), worker)


def start(
    main: Callable[..., None],
    owner: int,
    before: StateBeforeImports,
    prepare: Callable[[], None] = lambda: None,
) -> None:
    """Fork the server of a flow or a dvc; return at once.

    Args:
        main: The work of a stage, with its words.
        owner: Its process id.
        before: Of `look_before`.
        prepare: What the server does first, while the first stage starts: it imports more.
    """
    if not hasattr(os, "pidfd_open"):  # Linux alone has it
        return
    try:
        server = _Server(main, psutil.Process(owner), before)
    except (OSError, psutil.Error):  # the owner has ended, or has a server
        return
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork():
        return
    try:
        server.serve(prepare)
    finally:
        os._exit(0)


@contextmanager
def _connect(owner: psutil.Process) -> Iterator[socket.socket | None]:
    """The connection to the server of a flow or a dvc; None where it has none."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(_name_address(owner))
            yield server if _user_of(server) == os.getuid() else None
        except (OSError, psutil.Error):
            yield None


def _name_address(owner: psutil.Process) -> str:
    """The address of the owner's server: an abstract one, which is gone with the server.

    Process ids come again, so it has the owner's start, in ticks since the machine's: of two
    processes, psutil's `create_time` may differ by a second, since the clock is adjusted.
    """
    state = Path(f"/proc/{owner.pid}/stat").read_text(encoding="utf-8")
    start = state.rpartition(")")[2].split()[19]
    return f"\0posttrain-{os.getuid()}-{owner.pid}-{start}"


def _user_of(connection: socket.socket) -> int:
    """The user of the process at the other end."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return CREDENTIALS.unpack(content)[1]


def _read_message(stream: TextIO) -> dict[str, Any]:
    """The next message; an empty one if the other process has ended, perhaps within it."""
    with suppress(OSError, ValueError):
        return json.loads(stream.readline() or "{}")
    return {}


def _end_with(status: int | None, worker: int) -> NoReturn:
    """End as a process ended: with its exit status, or by the signal -status.

    None: the server was killed, and the kernel has asked the worker to end.
    """
    if status is None:
        with suppress(ProcessLookupError):
            select.select([os.pidfd_open(worker)], [], [])
        status = process.STATUS
    if status < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


@dataclass
class _PassedSignals:
    """Requests to end, which this process passes on to the worker."""

    worker: int | None = None
    pending: list[int] = field(default_factory=list[int])
    ignored: list[int] = field(
        default_factory=lambda: [
            number for number in process.SIGNALS if signal.getsignal(number) == signal.SIG_IGN
        ]
    )

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Meanwhile signals are passed on; those for which there was no worker come at the end."""
        numbers = [number for number in process.SIGNALS if number not in self.ignored]
        before = {number: signal.signal(number, self._catch) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for number in self.pending:
                os.kill(os.getpid(), number)

    def pass_to(self, worker: int) -> None:
        """Pass on what came before, and what comes from now on."""
        self.worker = worker
        while self.pending:
            self._send(self.pending.pop(0))

    def _catch(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.worker is None:
            self.pending.append(number)
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            assert self.worker is not None
            os.kill(self.worker, number)


@dataclass
class _Client:
    """A process that waits for the end of its worker."""

    connection: socket.socket
    worker: int
    dvc_end: int | None
    """Descriptor of the end of its dvc; None once that has been seen."""

    def list_descriptors(self) -> list[int]:
        """What the server watches, besides the worker."""
        return [self.connection.fileno(), *([] if self.dvc_end is None else [self.dvc_end])]

    def end_worker(self, ready: Collection[int]) -> None:
        """Kill the worker if its client was killed; ask it to end if the dvc has ended.

        Where a shell between the two lives on, the client does not hear of the dvc's end.
        """
        if self.connection.fileno() in ready:
            os.kill(self.worker, signal.SIGKILL)
        elif self.dvc_end in ready:
            self.forget_dvc()
            os.kill(self.worker, signal.SIGTERM)

    def forget_dvc(self) -> None:
        """Close the descriptor of the dvc, if it is open."""
        if self.dvc_end is not None:
            os.close(self.dvc_end)
            self.dvc_end = None


class _Server:
    """The process that is forked for each stage."""

    def __init__(
        self, main: Callable[..., None], owner: psutil.Process, before: StateBeforeImports
    ) -> None:
        """Listen, from now on; an OSError if the owner has ended or has a server."""
        self.main, self.before = main, before
        self.folder = str(Path.cwd())
        self.imported: dict[str, str] = {}
        """Variables that the imports set."""
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(_name_address(owner))
        self.listener.listen()
        self.owner_end = os.pidfd_open(owner.pid)
        self.clients: dict[int, _Client] = {}
        """Descriptor of a worker's end -> the process that waits for it."""

    def serve(self, prepare: Callable[[], None]) -> None:
        """Serve until the owner ends, and wait for the workers, each of which ends with its dvc."""
        process.ignore()  # the owner says when this ends
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(NUM_STREAMS):  # else a reader of the check's output waits for this
            os.dup2(null, number)
        prepare()
        self.imported = {
            name: value
            for name, value in os.environ.items()
            if self.before.environment.get(name) != value
        }
        is_served = True
        while is_served or self.clients:
            clients = self.clients.values()
            watched = [*self.clients, *(n for each in clients for n in each.list_descriptors())]
            if is_served:
                watched += [self.listener.fileno(), self.owner_end]
            ready, _, _ = select.select(watched, [], [])
            for worker_end in [end for end in self.clients if end in ready]:
                self._report_end(worker_end)
            for client in clients:
                client.end_worker(ready)
            if is_served and self.owner_end in ready:
                is_served = False
                self.listener.close()
            elif is_served and self.listener.fileno() in ready:
                with suppress(OSError):  # the process that asked, or its dvc, has ended
                    self._accept()

    def _accept(self) -> None:
        """Fork a worker for the next process that asks, unless it is of another kind."""
        with ExitStack() as of_request, ExitStack() as of_client:
            connection = of_client.enter_context(self.listener.accept()[0])
            if _user_of(connection) != os.getuid():
                return
            connection.settimeout(REQUEST_SECONDS)
            _, descriptors, _, _ = socket.recv_fds(connection, 1, NUM_STREAMS)
            for descriptor in descriptors:
                of_request.callback(os.close, descriptor)
            with connection.makefile("r", encoding="utf-8") as stream:
                request = _read_message(stream)
            if len(descriptors) < NUM_STREAMS or not self._can_serve(request):
                return
            connection.settimeout(None)
            dvc_end = os.pidfd_open(request["dvc"])
            of_client.callback(os.close, dvc_end)
            server, worker = os.getpid(), os.fork()
            if worker == 0:
                self._work(server, connection, [*descriptors, dvc_end], request)
            self.clients[os.pidfd_open(worker)] = _Client(connection, worker, dvc_end)
            of_client.pop_all()

    def _can_serve(self, request: Mapping[str, Any]) -> bool:
        """Whether a fork of this process has what the process that asks would have by itself."""

        def select_variables(environment: Mapping[str, str]) -> dict[str, str]:
            return {
                name: value
                for name, value in environment.items()
                if not name.startswith("DVC_") and name not in OF_THE_SHELL | OF_ROUNDING
            }

        return (
            bool(request)
            and request["program"] == sys.executable
            and request["rounding"] in (None, stages.ROUNDING)
            and request["folder"] == self.folder
            and select_variables(request["environment"])
            == select_variables(self.before.environment)
            and _list_imported().items() <= self.before.files.items()
        )

    def _report_end(self, worker_end: int) -> None:
        """Tell the process that waits for a worker how it has ended."""
        client = self.clients.pop(worker_end)
        _, status = os.waitpid(client.worker, 0)
        with suppress(OSError):  # it has ended itself
            _write(client.connection, {"status": os.waitstatus_to_exitcode(status)})
        client.connection.close()
        client.forget_dvc()
        os.close(worker_end)

    def _work(
        self,
        server: int,
        client: socket.socket,
        descriptors: list[int],
        request: Mapping[str, Any],
    ) -> NoReturn:
        """The worker: becomes the process that asked, but for its id, and does its work."""
        try:
            for number in process.SIGNALS:
                is_ignored = number in request["ignored"]
                default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                signal.signal(number, signal.SIG_IGN if is_ignored else default)
            process.die_with_parent(signal.SIGTERM, parent=server)
            os.setpgid(0, request["group"])
            process.dvc_of_work = psutil.Process(request["dvc"])
            # Before any work: without this message the process that asked works itself.
            _write(client, {"process": os.getpid()})
            for number, descriptor in enumerate(descriptors[:NUM_STREAMS]):
                os.dup2(descriptor, number)
            of_clients = [n for each in self.clients.values() for n in each.list_descriptors()]
            for descriptor in [
                *descriptors, *self.clients, *of_clients, client.detach(), self.listener.detach(),
                self.owner_end,
            ]:  # fmt: skip
                os.close(descriptor)
            rounding = {name: os.environ[name] for name in OF_ROUNDING & os.environ.keys()}
            os.environ.clear()
            os.environ.update(request["environment"] | self.imported)
            for name in OF_ROUNDING:
                os.environ.pop(name, None)
            os.environ.update(rounding)
            sys.argv, sys.orig_argv = request["argv"], request["command"]
            process.run(self.main)
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)


def _write(client: socket.socket, message: dict[str, int]) -> None:
    client.sendall(f"{json.dumps(message)}\n".encode())


def _list_imported() -> Files:
    """The files of `stages` that this process has imported, as they are now."""
    modules = [module for name, module in sys.modules.items() if name.startswith(stages.__name__)]
    return _describe(file for module in modules if (file := getattr(module, "__file__", None)))


def _describe(paths: Iterable[str]) -> Files:
    files = Files()
    for path in paths:
        try:
            state = os.stat(path)  # noqa: PTH116
        except FileNotFoundError:
            files[path] = -1, -1
        else:
            files[path] = state.st_size, state.st_mtime_ns
    return files
