import shutil
from pathlib import Path

import pytest
import torch
from tiny_checkpoints import CPU, checkpoint, compute

from stages import rows
from stages.models import model_tokenizer, policy, start
from stages.models.start import ModelConfig, TinyConfig, build_tiny

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


SHAPE = {
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 4,
    "intermediate_size": 32,
    "max_length": 64,
    "vocab_size": 700,
}


@pytest.fixture
def words():
    return model_tokenizer.train_tokenizer(["Anna has 5 apples."], 700)


def test_the_shape_and_the_special_tokens_are_as_configured(words):
    model = build_tiny(TinyConfig(**SHAPE), words, 0)
    assert model.config.model_type == "llama"
    assert model.get_input_embeddings().weight.shape == (len(words), 16)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert model.config.eos_token_id == words.eos_token_id
    assert model.config.pad_token_id == words.pad_token_id
    assert model(torch.tensor([[3, 4]])).logits.shape == (1, 2, len(words))


def test_weights_are_a_function_of_the_seed(words):
    first, same, other = (
        build_tiny(TinyConfig(**SHAPE), words, seed).state_dict() for seed in (0, 0, 1)
    )
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_heads_that_do_not_divide_the_width_are_refused(words):
    with pytest.raises(ValueError, match="hidden_size 16 is not a multiple of num_heads 3"):
        build_tiny(TinyConfig(**SHAPE | {"num_heads": 3}), words, 0)
