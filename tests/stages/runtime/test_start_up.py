"""What stays out of a stage's process, that it changes no number, and that it can come back."""

import gc
import importlib.metadata
import os
import subprocess
import sys

import pytest

WORK = """
import sys
sys.argv[0] = {word!r}
import torch
import stages
from stages.models import policy, scalar_head
from stages import optim
from stages.runtime import start_up
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                     num_attention_heads=2)
model = LlamaForCausalLM(config)
rates = optim.OptimConfig(learning_rate=1e-2, warmup_share=0.0, schedule="constant",
                          weight_decay=0.1, max_grad_norm=1.0)
optimizer = optim.make_adamw(model, rates)
for step in range(3):
    model(input_ids=torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
    optim.step_optimizer(optimizer, rates, step, 3)
model.save_pretrained({folder!r})
again = LlamaForCausalLM.from_pretrained({folder!r})
print(sum(float(p.double().abs().sum()) for p in again.parameters()).hex())
print("light" if hasattr(sys.modules.get("torch._dynamo"), "__path__")
      and sys.modules["torch._dynamo"].__loader__ is start_up._finder else "full")
start_up.imported()
import sklearn, scipy.optimize
assert scipy.optimize.linear_sum_assignment([[1.0]])
start_up.give_back()
import torch._dynamo, torch.distributed.tensor
assert torch._dynamo.config.cache_size_limit > 0
assert torch.distributed.tensor.DTensor.__init__
"""


@pytest.mark.slow
def test_a_stage_starts_without_them_and_computes_the_same(tmp_path):
    found = {}
    for word in ("-m", "-c"):
        code = WORK.format(word=word, folder=str(tmp_path / word))
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found[word] = done.stdout.split()
    assert found["-m"][0] == found["-c"][0]
    assert [kind for _, kind in found.values()] == ["light", "full"]


@pytest.mark.slow
def test_where_there_is_a_gpu_torch_has_its_compiler():
    """Long rows are read by flex attention, compiled."""
    code = """if True:
        import sys
        sys.argv[0] = "-m"
        import stages, torch._dynamo
        from torch.nn.attention.flex_attention import BlockMask
        print("real" if hasattr(BlockMask, "from_kv_blocks") else "empty")
    """
    for visible, printed in (("0", "real\n"), ("", "empty\n")):
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": visible}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.stdout == printed, done.stderr


def test_the_names_that_transformers_has_are_read_once_and_are_the_same(tmp_path):
    from transformers.utils import import_utils

    from stages.runtime.start_up import _read_once

    folder = tmp_path / "models"
    (folder / "one").mkdir(parents=True)
    (folder / "__init__.py").touch()
    text = '__all__ = ["One", "Two"]\n\n\nclass One: ...\n\n\nclass Two: ...\n'
    (folder / "one" / "modeling_one.py").write_text(text, encoding="utf-8")
    read = import_utils.create_import_structure_from_path
    expected = read(str(folder))
    assert expected == {"one": {frozenset({"torch"}): {"modeling_one": {"One", "Two"}}}}
    asked = []
    once = _read_once(lambda path: asked.append(path) or read(path))
    once(folder).clear()  # what a caller does to it is not seen by the next
    assert once(str(folder / "__init__.py")) == once(folder) == expected
    assert asked == [str(folder)]
    assert once(str(folder / "one")) == expected["one"]


def test_transformers_finds_the_version_of_every_package():
    from transformers.utils import import_utils

    from stages.runtime import start_up

    real = importlib.metadata.packages_distributions()
    found = {}
    for kind, mapping in {"real": real, "ours": start_up.Distributions()}.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(import_utils, "PACKAGE_DISTRIBUTION_MAPPING", mapping)
            found[kind] = {
                name: version(import_utils._candidate_distribution_names(name))
                for name in ["torch", "tokenizers", "PIL", "yaml", "dateutil"]
            }
    assert found["ours"] == found["real"]
    assert None not in found["ours"].values()
    assert start_up.Distributions().get("no_such_package", []) == []


def version(candidates):
    """As transformers looks one up."""
    for name in candidates:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def test_the_collector_is_as_it_was():
    from stages.runtime import start_up

    before = gc.get_threshold()
    try:
        start_up.imported()
        assert gc.get_threshold() == start_up.COLLECTOR
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
