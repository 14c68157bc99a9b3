"""Real servers on loopback that can die, hang and return; a proxy that cuts; what MLflow holds."""

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mlflow
import psutil
from mlflow.entities import ViewType
from toy_repo import wait_until

NUM_PORTS = 20


class Server:
    """A command that listens on a port: the first of some that nobody has when it binds it."""

    def __init__(
        self, command: Callable[[int], list[str]], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.command, self.folder, self.environment = command, folder, environment
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, health: str = "/health") -> None:
        """Returns when it answers."""
        first = 20_000 + os.getpid() % 10_000  # below those that the kernel hands out
        for self.port in range(first, first + 7 * NUM_PORTS, 7):
            with (self.folder / "server.log").open("ab") as file:
                self.process = subprocess.Popen(
                    self.command(self.port), cwd=self.folder, env=self.environment, stdout=file,
                    stderr=file, start_new_session=True,
                )  # fmt: skip
            wait_until(lambda: self.has_ended() or self.listens(), "a server that listens")
            if not self.has_ended():
                wait_until(lambda: http_status(f"{self.url}{health}") == 200, "its answer")
                return
        raise AssertionError((self.folder / "server.log").read_text())

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def listens(self) -> bool:
        assert self.process is not None
        with suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            return any(
                item.status == psutil.CONN_LISTEN and item.laddr.port == self.port
                for each in (root, *root.children(recursive=True))
                for item in each.net_connections("tcp")
            )
        return False

    def send(self, number: int) -> None:
        """A signal to every process of the server; SIGKILL is waited for."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.wait(timeout=60)


@contextmanager
def serve_mlflow(folder: Path, store: str | None = None) -> Iterator[Server]:
    """`mlflow server` with a store, else with one in the folder."""
    uri = store or f"sqlite:///{folder}/store.db"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    environment |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    # Its five processes for jobs, of which this project has none, take 20 s of CPU time to start.
    environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    words = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--workers", "1",
             "--artifacts-destination", f"{folder}/artifacts", "--host", "127.0.0.1"]  # fmt: skip
    server = Server(lambda port: [*words, "--port", str(port)], folder, environment)
    server.start()
    try:
        yield server
    finally:
        server.send(signal.SIGKILL)


def http_status(url: str) -> int:
    """HTTP status; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@contextmanager
def hanging() -> Iterator[str]:
    """The address of a socket that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


class Proxy:
    """Forwards to a port; after `limit` bytes it cuts or hangs for ever.

    While its server is away it refuses connections, as a dead server does: a client may retry for
    minutes where a connection is accepted and cut. The server may return on another port.
    """

    def __init__(self, port: int, limit: float = float("inf"), *, hangs: bool = False) -> None:
        self.port, self.limit, self.hangs, self.count = port, limit, hangs, 0
        self.lock, self.sockets = threading.Lock(), []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.own_port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.own_port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def refuse(self) -> None:
        """Refuse connections until `resume`; the port stays bound."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.own_port))  # but it does not listen
        for item in self.sockets:
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
        self.sockets.clear()

    def resume(self, port: int) -> None:
        """Forward to a server that has returned."""
        self.port = port
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self.listener.accept()
                try:
                    theirs = socket.create_connection(("127.0.0.1", self.port))
                except OSError:
                    ours.close()
                    continue
                self.sockets += [ours, theirs]
                for pair in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1024):
                with self.lock:
                    self.count += len(data)
                    over = self.count > self.limit
                if over and self.hangs:
                    threading.Event().wait()
                if over:
                    self.close()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for item in [self.listener, *self.sockets]:
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def contents(uri: str, experiment: str = "posttrain") -> dict[str, Any]:
    """All that an experiment of a store holds, by the names of runs and models in place of ids."""
    client = mlflow.MlflowClient(uri)
    number = client.get_experiment_by_name(experiment).experiment_id
    runs = client.search_runs([number], run_view_type=ViewType.ALL)
    models = client.search_logged_models([number])
    names = {run.info.run_id: run.info.run_name for run in runs}
    names |= {model.model_id: model.name for model in models}
    assert len(set(names.values())) == len(names), f"a duplicate: {sorted(names.values())}"

    def rename(text: str) -> str:
        text = text.replace(f"experiments/{number}/", "experiments/_/")
        return re.sub(r"[0-9a-f]{32}", lambda match: names.get(match[0], match[0]), text)

    def digest_files(run_id: str) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            top = Path(client.download_artifacts(run_id, "", folder))
            return {
                str(path.relative_to(top)): hashlib.sha256(
                    rename(path.read_text(encoding="utf-8")).encode()
                    if path.suffix == ".json"
                    else path.read_bytes()
                ).hexdigest()
                for path in sorted(top.rglob("*"))
                if path.is_file()
            }

    result: dict[str, Any] = {}
    for run in (client.get_run(run.info.run_id) for run in runs):
        info = run.info
        result[info.run_name] = {
            "info": (info.status, info.start_time, info.end_time, info.lifecycle_stage),
            "params": run.data.params,
            "tags": {name: rename(value) for name, value in run.data.tags.items()},
            "points": {
                name: sorted(
                    (point.step, point.value, point.timestamp)
                    for point in client.get_metric_history(info.run_id, name)
                )
                for name in run.data.metrics
            },
            "inputs": sorted(item.dataset.name for item in run.inputs.dataset_inputs),
            "outputs": sorted(names[output.model_id] for output in run.outputs.model_outputs),
            "artifacts": digest_files(info.run_id),
        }
    for model in models:
        tags = {name: re.sub(r"\d", "", value) if "Versions" in name else value
                for name, value in model.tags.items()}  # fmt: skip
        result[model.name] = (str(model.status), tags, names[model.source_run_id])
    versions = client.search_model_versions("name = 'posttrain-policy'")
    result["versions"] = sorted(
        (names[it.run_id], names[it.source.removeprefix("models:/")], sorted(it.tags.items()))
        for it in versions
        if it.run_id in names
    )
    return result
