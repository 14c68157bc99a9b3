import shutil
from pathlib import Path

import pytest
import torch
from tiny_checkpoints import CPU, checkpoint, compute

from stages import rows
from stages.models import model_tokenizer, policy, start
from stages.models.config import ModelConfig

TINY = {
    "hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
    "max_length": 32, "vocab_size": 700,
}  # fmt: skip
RANDOM = ModelConfig(path=None, revision=None, tiny=TINY)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_tokenizer.train_tokenizer(["1 + 1 = 2"], 700).save_pretrained(rows.model(start.BASE, 0))


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_policy_is_read_from_its_folder():
    shutil.copytree(checkpoint("llama"), "data/policies/sft/model/1")
    found = start.load("sft", 1, RANDOM, compute(), CPU)
    assert torch.equal(weights(found), weights(policy.load(checkpoint("llama"), compute(), CPU)))
    assert start.folder("sft", 1, RANDOM) == Path("data/policies/sft/model/1")


def test_the_base_model_is_the_checkpoint_that_params_name():
    config = RANDOM.model_copy(update={"path": str(checkpoint("qwen3"))})
    found = start.load(start.BASE, 0, config, compute(), CPU)
    assert torch.equal(weights(found), weights(policy.load(checkpoint("qwen3"), compute(), CPU)))
    assert start.folder(start.BASE, 0, config) == checkpoint("qwen3")


def test_without_a_path_it_is_random_from_the_seed_where_a_random_model_will_do():
    first, again, other = (
        weights(start.load(start.BASE, 0, RANDOM, compute(), CPU, weights_seed=seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_elsewhere_a_random_model_is_refused():
    with pytest.raises(ValueError, match="a random model earns no reward"):
        start.load(start.BASE, 0, RANDOM, compute(), CPU)
    with pytest.raises(ValueError, match="a random model earns no reward"):
        start.folder(start.BASE, 0, RANDOM)


def test_an_engine_that_reads_files_needs_a_folder():
    config = RANDOM.model_copy(update={"path": "Qwen/Qwen3-0.6B", "revision": "c1"})
    with pytest.raises(ValueError, match=r"found the hub id model\.path 'Qwen/Qwen3-0.6B'"):
        start.folder(start.BASE, 0, config)
