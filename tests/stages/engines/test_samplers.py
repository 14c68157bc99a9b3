import shutil

import pytest
from tiny_checkpoints import checkpoint, compute

from stages import rows
from stages.engines import samplers
from stages.engines.transformers import TransformersSampler
from stages.models import model_tokenizer
from stages.models.config import ModelConfig, TinyConfig
from stages.sampler import Sampler

MODEL = ModelConfig(
    path=None,
    revision=None,
    tiny=TinyConfig(
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_length=64,
        vocab_size=700,
    ),
)


def test_a_policys_folder_is_sampled_with_its_own_tokenizer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = rows.model("sft", 2)
    shutil.copytree(checkpoint("llama"), folder)
    words = model_tokenizer.train_tokenizer(["2 + 2"] * 2, 700)
    words.save_pretrained(folder)
    found = samplers.load("transformers", "sft", 2, model=MODEL, compute=compute(), max_length=64)
    assert isinstance(found, Sampler)
    assert isinstance(found, TransformersSampler)
    assert words.eos_token_id in found.eos_ids


def test_a_random_base_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="a random model earns no reward"):
        samplers.load("transformers", rows.BASE, 0, model=MODEL, compute=compute(), max_length=64)
