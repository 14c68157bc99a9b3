import pytest
import torch
from tiny_checkpoints import BLOCKS, CPU, FAMILIES, checkpoint, compute, load
from transformers import LlamaConfig, LlamaForCausalLM

from stages.models import process_head
from stages.models.size import body_parameters


def test_a_llama_counted_by_hand():
    # Of each of 2 layers: queries and outputs 16 x 16, keys and values 16 x 8 (2 of 4 heads of
    # 4), three matrices 16 x 32, two norms of 16; one norm at the end.
    layer = 2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 32 + 2 * 16
    assert body_parameters(checkpoint("llama")) == 2 * layer + 16


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_model_without_embeddings_and_heads(family):
    model = load(family)
    names = ("embed_tokens", "wte", "wpe", "lm_head")
    body = [p.numel() for name, p in model.named_parameters() if not any(n in name for n in names)]
    assert body_parameters(checkpoint(family)) == sum(body) > 0


def test_neither_the_vocabulary_nor_a_head_of_scores_counts(tmp_path):
    expected = body_parameters(checkpoint("llama"))
    untied = LlamaConfig(**BLOCKS | {"vocab_size": 99}, tie_word_embeddings=False)
    LlamaForCausalLM(untied).save_pretrained(tmp_path / "untied")
    assert body_parameters(tmp_path / "untied") == expected
    head = process_head.from_policy(checkpoint("llama"), 2, compute(), CPU)
    head.save_pretrained(tmp_path / "process")
    assert body_parameters(tmp_path / "process") == expected


def test_no_memory_is_taken():
    before = torch.get_default_device()
    body_parameters(checkpoint("gpt2"))
    assert torch.get_default_device() == before
