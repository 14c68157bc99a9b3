"""A model made without storage is the same model, and its process has no need of sympy."""

import subprocess
import sys

import pytest
import torch
from tiny_checkpoints import checkpoint
from transformers import AutoModelForCausalLM

from stages.models import meta_device

LOAD = """
import sys
sys.argv[0] = "-m"
import stages  # as in `python -m stages.<stage>`
from pathlib import Path
import torch
from tiny_checkpoints import CPU, compute
from stages.models import device, policy, scalar_head, size

path = Path({path!r})
device.setup(compute())
policy.load(path, compute(), CPU)
size.of_scorer(path)
assert torch.are_deterministic_algorithms_enabled()
print([name for name in ("sympy", "torch._inductor") if name in sys.modules])
"""


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_process_of_a_seed_imports_neither_sympy_nor_torchs_compiler(family):
    code = LOAD.format(path=str(checkpoint(family)))
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[-2] == "[]"


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_it_is_read_from_a_folder_to_the_same_bits(family):
    path = checkpoint(family)
    expected = AutoModelForCausalLM.from_pretrained(path)
    with meta_device.WithoutSympy():
        found = AutoModelForCausalLM.from_pretrained(path)
    assert not any(tensor.is_meta for tensor in found.state_dict().values())
    for name, buffer in dict(expected.named_buffers()).items():  # the angles of positions
        assert torch.equal(dict(found.named_buffers())[name], buffer), name
    for name, parameter in expected.named_parameters():
        assert torch.equal(dict(found.named_parameters())[name], parameter), name


def test_a_weight_with_storage_is_drawn_as_ever():
    torch.manual_seed(3)
    expected = torch.nn.Embedding(5, 4).weight
    torch.manual_seed(3)
    with meta_device.WithoutSympy():
        found = torch.nn.Embedding(5, 4).weight
    assert torch.equal(found, expected)
    assert found.std() > 0.1
