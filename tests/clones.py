"""Clones of the toy repository, each as if on a machine of its own, that share a DVC remote."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

from flows.process import kill_tree

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
# An output of its own at each execution, as run records are.
RECORD = '(out / "record").write_text(f"{os.getpid()} {time.time()}")\n'


@dataclass(frozen=True)
class Clone:
    """One clone, and the environment of its machine."""

    path: Path
    environment: dict[str, str]

    def start(self, *command: str) -> subprocess.Popen[str]:
        log = (self.path.parent / f"{self.path.name}.log").open("a")
        return subprocess.Popen(
            command, cwd=self.path, env=self.environment, stdout=log, stderr=log, text=True
        )

    def run(self, *command: str, code: int = 0, **extra: str) -> str:
        result = subprocess.run(
            command,
            cwd=self.path,
            env=self.environment | extra,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
            check=False,
        )
        assert result.returncode == code, result.stdout
        return result.stdout

    def flow(self, *arguments: str, code: int = 0, **extra: str) -> str:
        return self.run(sys.executable, "-m", "flows.local", *arguments, code=code, **extra)

    def flow_until(self, *arguments: str, says: str, then: Callable[[], object]) -> str:
        """`flow`, with something done when it first says something."""
        command = [sys.executable, "-m", "flows.local", *arguments]
        flow = subprocess.Popen(
            command,
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert flow.stdout is not None
        lines: list[str] = []
        for line in flow.stdout:
            if says in line and not any(says in old for old in lines):
                then()
            lines.append(line)
        assert flow.wait() == 0, "".join(lines)
        return "".join(lines)

    def started(self) -> list[str]:
        path = self.path / "started.log"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def locked(self) -> dict[str, Any]:
        """dvc.lock, but for what differs at each execution."""
        stages = YAML(typ="safe").load(self.path / "dvc.lock")["stages"]
        return {
            name: {"cmd": item["cmd"], "params": item.get("params")}
            for name, item in stages.items()
        } | {path.parent.name: path.read_text() for path in self.path.rglob("data/**/out.txt")}


@dataclass
class Clones:
    """The repository that they are clones of."""

    origin: Path
    environment: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    def share(self, url: str, **options: str) -> None:
        dvc = [sys.executable, "-m", "dvc", "remote"]
        calls = [[*dvc, "add", "-q", "-d", "results", url]]
        calls += [[*dvc, "modify", "-q", "results", *option] for option in options.items()]
        work = self.origin / "work.py"
        work.write_text(work.read_text() + RECORD)
        (self.origin / ".gitignore").write_text(
            "/data/**\n!/data/**/\n/started.log\n/release\n__pycache__/\n"
        )
        for call in [*calls, [*GIT, "add", "-A"], [*GIT, "commit", "-qm", "toy"]]:
            subprocess.run(call, cwd=self.origin, check=True)

    def clone(self, name: str) -> Clone:
        path = self.origin.parent / name
        subprocess.run(["git", "clone", "-q", str(self.origin), str(path)], check=True)
        # Where DVC keeps what it knows of a remote: elsewhere on another machine.
        site = {"DVC_SITE_CACHE_DIR": f"{path}.site", "PWD": str(path)}
        return Clone(path, os.environ | self.environment | site)


def starts(*clones: Clone) -> Counter[str]:
    """How often each stage was started, in all clones together."""
    return Counter(name for clone in clones for name in clone.started())


def end(process: "subprocess.Popen[str]") -> None:
    """SIGKILL for a process and all it started, as when its machine goes off."""
    tree = psutil.Process(process.pid)
    below = tree.children(recursive=True)
    tree.kill()
    for item in [*below, *(late for old in below for late in safe_children(old))]:
        if item.is_running():
            item.kill()
    process.wait()


def safe_children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def http_status(url: str) -> int:
    """HTTP status; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def background(command: list[str], root: Path, env: dict[str, str], log: Path) -> Iterator[None]:
    """A process that is killed, with all it started, at the end."""
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=root, env=env, stdout=output, stderr=output)
        try:
            yield
        finally:
            kill_tree(process.pid, grace_seconds=3.0)
            process.wait()


@contextmanager
def s3_server(port: int) -> Iterator[None]:
    """An S3 server on the loopback; what it holds stays for the next one of this process."""
    from moto.server import ThreadedMotoServer  # its Flask breaks vLLM's tests in the same process

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        yield
    finally:
        server.stop()


AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


def make_bucket(port: int, name: str) -> None:
    import boto3

    boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    ).create_bucket(Bucket=name)


def wait_until(true: Any, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)
