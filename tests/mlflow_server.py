"""A real MLflow server on loopback that can die, hang and return; a proxy that cuts; contents."""

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import ViewType


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """`mlflow server` with a store in a folder, on one port for all its lives."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.store = f"sqlite:///{folder}/store.db"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", self.store,
                   "--artifacts-destination", f"{self.folder}/artifacts", "--workers", "1",
                   "--host", "127.0.0.1", "--port", str(self.port)]  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
        environment |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
        log = self.folder / "server.log"
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        begin = time.monotonic()
        while True:
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() - begin < 120, log.read_text()
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return
            time.sleep(0.2)

    def send(self, number: int) -> None:
        """A signal to every process of the server; SIGKILL is waited for."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.wait(timeout=60)


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.send(signal.SIGKILL)


@contextmanager
def hanging() -> Iterator[str]:
    """The address of a socket that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


class Proxy:
    """Forwards to a port; after `limit` bytes it cuts every connection, or hangs for ever."""

    def __init__(self, port: int, limit: float = float("inf"), *, hangs: bool = False) -> None:
        self.port, self.limit, self.hangs, self.count = port, limit, hangs, 0
        self.ended: float | None = None
        """When it cut, or hung."""
        self.lock, self.sockets = threading.Lock(), []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self.listener.accept()
                theirs = socket.create_connection(("127.0.0.1", self.port))
                self.sockets += [ours, theirs]
                for pair in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1024):
                with self.lock:
                    self.count += len(data)
                    over = self.count > self.limit
                    self.ended = self.ended or (time.monotonic() if over else None)
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
    known = client.get_experiment_by_name(experiment)
    assert known is not None
    runs = client.search_runs([known.experiment_id], run_view_type=ViewType.ALL)
    models = client.search_logged_models([known.experiment_id])
    names = {run.info.run_id: run.info.run_name for run in runs}
    names |= {model.model_id: model.name for model in models}
    assert len(set(names.values())) == len(names), f"a duplicate: {sorted(names.values())}"

    def rename(text: str) -> str:
        text = text.replace(f"experiments/{known.experiment_id}/", "experiments/_/")
        return re.sub(r"[0-9a-f]{32}", lambda match: names.get(match[0], match[0]), text)

    result: dict[str, Any] = {}
    for run in (client.get_run(run.info.run_id) for run in runs):
        info, inputs, outputs = run.info, run.inputs, run.outputs
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
            "inputs": sorted(item.dataset.name for item in inputs.dataset_inputs),
            "outputs": sorted(names[output.model_id] for output in outputs.model_outputs),
            "artifacts": artifacts(client, info.run_id, rename),
        }
    for model in models:
        tags = {name: re.sub(r"\d", "", value) if "Versions" in name else value
                for name, value in model.tags.items()}  # fmt: skip
        result[model.name] = (str(model.status), tags, names[model.source_run_id])
    versions = client.search_model_versions("name = 'posttrain-policy'")
    result["versions"] = sorted(
        (
            names[item.run_id],
            names[item.source.removeprefix("models:/")],
            tuple(sorted(item.tags.items())),
        )
        for item in versions
        if item.run_id in names
    )
    return result


def artifacts(
    client: mlflow.MlflowClient, run_id: str, rename: Callable[[str], str]
) -> dict[str, str]:
    """The digest of each file of a run; of JSON with names in place of ids."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(client.download_artifacts(run_id, "", folder))
        files = [path for path in sorted(top.rglob("*")) if path.is_file()]
        contents = {
            path: rename(path.read_text(encoding="utf-8")).encode()
            if path.suffix == ".json"
            else path.read_bytes()
            for path in files
        }
        return {
            str(path.relative_to(top)): hashlib.sha256(content).hexdigest()
            for path, content in contents.items()
        }
