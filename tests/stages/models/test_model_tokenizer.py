import pytest

from stages.models import model_tokenizer
from stages.models.config import ModelConfig
from stages.models.tiny import TinyConfig

TINY = TinyConfig(
    hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_length=64, vocab_size=800
)


def test_without_a_path_the_tokenizer_is_learned_and_can_be_loaded_again(tmp_path):
    learned = model_tokenizer.for_model(
        ModelConfig(path=None, revision=None, tiny=TINY), ["2 + 2 = 4"]
    )
    learned.save_pretrained(tmp_path)
    config = ModelConfig(path=str(tmp_path), revision=None, tiny=TINY)
    assert model_tokenizer.for_model(config, []).get_vocab() == learned.get_vocab()


def test_a_pad_token_is_found_and_a_missing_end_token_is_an_error(tmp_path):
    learned = model_tokenizer.for_model(
        ModelConfig(path=None, revision=None, tiny=TINY), ["2 + 2 = 4"]
    )
    learned.pad_token = None
    learned.save_pretrained(tmp_path / "no-pad")
    loaded = model_tokenizer.load(tmp_path / "no-pad")
    assert loaded.pad_token_id == loaded.eos_token_id
    learned.eos_token = None
    learned.save_pretrained(tmp_path / "no-end")
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        model_tokenizer.load(tmp_path / "no-end")


def test_only_the_tiny_model_limits_the_length_of_rows():
    ModelConfig(path="some/where", revision="1a2b3c", tiny=TINY).check_length(65)
    ModelConfig(path=None, revision=None, tiny=TINY).check_length(64)
    with pytest.raises(ValueError, match="rows of 65 tokens"):
        ModelConfig(path=None, revision=None, tiny=TINY).check_length(65)


def test_a_hub_id_without_its_commit_is_refused():
    with pytest.raises(ValueError, match=r"set model\.revision to a commit"):
        ModelConfig(path="some/where", revision=None, tiny=TINY)
