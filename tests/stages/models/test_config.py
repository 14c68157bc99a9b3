import pytest
import torch

from stages.models import model_tokenizer
from stages.models.config import TinyConfig, build_tiny

SHAPE = {
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 4,
    "intermediate_size": 32,
    "max_length": 64,
    "vocab_size": 700,
}


@pytest.fixture(scope="module")
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
