import pytest
import tiny_checkpoints
import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load
from transformers import AutoConfig

from stages import auto
from stages.models import model_tokenizer, row_policy, scalar_head, size
from stages.models.row_policy import LoraConfig, ModelConfig, TinyConfig

# 2 blocks of q 16x16, k and v 16x8, o 16x16, gate, up and down 16x32; an output of 32x16
BLOCKS = 2 * (16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 32)
OUTPUT = 32 * 16
NORMS = 2 * 2 * 16 + 16


def test_a_policy_counts_its_tied_matrix_once_as_memory_and_once_as_work():
    result = size.measure_model(load("llama"))
    assert result["body"] == result["trained_body"] == BLOCKS
    assert result["output"] == result["trained_output"] == OUTPUT
    assert result["parameters"] == result["trained_parameters"] == BLOCKS + OUTPUT + NORMS


def test_adapters_are_matrices_too_and_the_rest_is_frozen():
    model = load("llama")
    row_policy.add_adapters(model, LoraConfig(rank=2, alpha=4), 0)
    new = 2 * 2 * ((16 + 16) + 2 * (16 + 8) + (16 + 16) + 3 * (16 + 32))
    result = size.measure_model(model)
    assert (result["body"], result["trained_body"]) == (BLOCKS + new, new)
    assert (result["output"], result["trained_output"]) == (OUTPUT, 0)
    assert result["trained_parameters"] == new


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_the_size_of_a_folder_is_that_of_the_model_in_it(family):
    whole = size.measure_model(load(family))
    result = size.measure_scorer(checkpoint(family))
    assert result == whole | {"trained_parameters": 0, "trained_body": 0, "trained_output": 0}


def test_an_ensemble_is_its_members_together(tmp_path):
    member = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU)
    for number in range(3):
        member.save_pretrained(tmp_path / str(number))
    result = size.measure_scorer(tmp_path)
    assert result["parameters"] == 3 * (BLOCKS + OUTPUT + NORMS + 16)
    assert (result["body"], result["output"]) == (3 * BLOCKS, 0)


def test_a_random_base_model_is_not_read_from_anywhere():
    tiny = TinyConfig(
        hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_length=8,
        vocab_size=700,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"model\.path is null"):
        size.measure_policy(
            "base", 0, ModelConfig(path=None, revision=None, thinking=None, tiny=tiny)
        )


def test_nothing_is_allocated_to_measure_a_folder():
    before = torch.get_rng_state()
    size.measure_scorer(checkpoint("llama"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("thinking", "thinks"), [(None, False), (False, False), (True, True)])
def test_facts_say_whether_the_model_is_to_think(tmp_path, thinking, thinks):
    load("llama").save_pretrained(tmp_path)
    model_tokenizer.train_tokenizer(["a"], 700).save_pretrained(tmp_path)
    result = size.model_facts({"path": str(tmp_path), "revision": None, "thinking": thinking})
    assert result is not None
    assert (result.thinks, result.has_chat_template) == (thinks, False)


@pytest.mark.parametrize(
    ("kind", "numbers", "shares"),
    [
        ("llama", {}, True),
        ("mistral", {"sliding_window": 4}, False),
        ("mistral", {"sliding_window": None}, True),
        ("gpt_oss", {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}, False),
        ("falcon", {"alibi": True}, False),
        (
            "gptj",
            {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "rotary_dim": 4},
            False,
        ),
    ],
)
def test_auto_shares_rows_only_where_the_model_can(tmp_path, kind, numbers, shares):
    model_tokenizer.train_tokenizer(["a few words"], 700).save_pretrained(tmp_path)
    AutoConfig.for_model(kind, **tiny_checkpoints.BLOCKS | numbers).save_pretrained(tmp_path)
    facts = size.model_facts({"path": str(tmp_path), "revision": None})
    assert facts is not None
    assert facts.shares_rows is shares
    content = {"compute": {"row_tokens": "auto", "pack_tokens": "auto"}, "model": {"path": "x"}}
    resolved = auto.resolve(content, facts)[0]["compute"]
    assert (resolved["row_tokens"] > 0, resolved["pack_tokens"] > 0) == (shares, shares)
