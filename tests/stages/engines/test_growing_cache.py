import pytest
import torch
from tiny_checkpoints import BLOCKS, FAMILIES, load, random_ids
from transformers import (
    AfmoeConfig,
    AutoConfig,
    AutoModelForCausalLM,
    MistralConfig,
)

from stages.engines import transformers
from stages.engines.growing_cache import GrowingCache, GrowingLayer, check_cache
from stages.models import attention, model_tokenizer


def states(generator, length, batch=2):
    return torch.randn(batch, 3, length, 4, generator=generator)


def test_it_holds_what_was_written_in_order():
    generator = torch.Generator().manual_seed(0)
    layer = GrowingLayer(10)
    written = [(states(generator, n), states(generator, n)) for n in (4, 1, 1)]
    for keys, values in written:
        found_keys, found_values = layer.update(keys, values)
    assert torch.equal(found_keys, torch.cat([keys for keys, _ in written], 2))
    assert torch.equal(found_values, torch.cat([values for _, values in written], 2))
    assert layer.get_seq_length() == 6


def test_growing_writes_in_place_without_a_copy():
    layer = GrowingLayer(10)
    first, _ = layer.update(torch.ones(2, 3, 4, 4), torch.ones(2, 3, 4, 4))
    second, _ = layer.update(torch.ones(2, 3, 1, 4), torch.ones(2, 3, 1, 4))
    assert first.data_ptr() == second.data_ptr()


def test_rows_are_kept_repeated_and_reordered():
    generator = torch.Generator().manual_seed(0)
    layer = GrowingLayer(10)
    keys, values = states(generator, 4), states(generator, 4)
    layer.update(keys, values)
    rows = torch.tensor([1, 0, 1])
    layer.select(rows)
    more = states(generator, 1, batch=3)
    result, _ = layer.update(more, more)
    assert torch.equal(result, torch.cat([keys[rows], more], 2))


def test_it_holds_what_attention_reads_in_mixed_precision():
    layer = GrowingLayer(4)
    rotated, plain = torch.randn(1, 1, 2, 8), torch.randn(1, 1, 2, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        keys, values = layer.update(rotated, plain)
    assert (keys.dtype, values.dtype) == (torch.bfloat16, torch.bfloat16)
    assert torch.equal(keys, rotated.bfloat16())


def test_more_positions_than_there_is_room_for_are_refused():
    layer = GrowingLayer(3)
    with pytest.raises(AssertionError, match="cache of 3 positions cannot hold 4"):
        layer.update(torch.ones(1, 1, 4, 2), torch.ones(1, 1, 4, 2))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_token_by_token_are_those_without_a_cache(family):
    model = load(family).eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.tensor([random_ids(generator, 12) for _ in range(3)])
    cache = GrowingCache(model.config.num_hidden_layers, 12)
    parts = [model(ids[:, :5], past_key_values=cache).logits]
    parts += [model(ids[:, t : t + 1], past_key_values=cache).logits for t in range(5, 12)]
    torch.testing.assert_close(torch.cat(parts, 1), model(ids).logits, rtol=1e-4, atol=1e-4)


def tiny(kind, **numbers):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **BLOCKS | numbers))


EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1}
RECURRENT = {
    "qwen3_next": {
        **EXPERTS, "head_dim": 8, "moe_intermediate_size": 16, "decoder_sparse_step": 9,
        "shared_expert_intermediate_size": 16, "linear_key_head_dim": 8, "linear_num_key_heads": 2,
        "linear_value_head_dim": 8, "linear_num_value_heads": 4,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "jamba": {
        **EXPERTS, "use_mamba_kernels": False, "mamba_d_state": 8, "mamba_dt_rank": 4,
        "attn_layer_period": 2, "attn_layer_offset": 1,
    },
    "mamba": {"state_size": 8},
    # It has no cache at all: each token would be drawn as if it were the first.
    "openai-gpt": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 128},
}  # fmt: skip


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_model_that_cannot_go_on_from_it_is_refused_and_vllm_is_named(kind):
    model = tiny(kind, **RECURRENT[kind])
    with pytest.raises(ValueError, match=r"goes on from a cache .*engine: vllm") as result:
        check_cache(model)
    assert type(model).__name__ in str(result.value)
    words = model_tokenizer.train_tokenizer(["a few words"], 700)
    with pytest.raises(ValueError, match="engine: vllm"):
        transformers.make_sampler(model, words, max_batch=4)


WINDOW = {"head_dim": 8, "sliding_window": 3, "layer_types": ["sliding_attention"] * 2}
LATENT = {
    "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
    "v_head_dim": 6, "first_k_dense_replace": 2, "head_dim": 4, "num_key_value_heads": 4,
}  # fmt: skip
OTHERS = {"cohere": {}, "gemma3_text": WINDOW, "deepseek_v3": LATENT}


@pytest.mark.parametrize("kind", [*FAMILIES, *OTHERS])
@pytest.mark.parametrize("training", [True, False])
def test_others_are_taken_and_left_as_they_were(kind, training):
    model = (load(kind) if kind in FAMILIES else tiny(kind, **OTHERS[kind])).train(training)
    before = torch.get_rng_state()
    check_cache(model)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training is training


def test_an_architecture_that_names_the_mask_goes_on_from_the_cache():
    # AFMoE hands all that it has to attention by name.
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
    sizes |= {"num_hidden_layers": 2, "intermediate_size": 16, "vocab_size": 32}
    config = AfmoeConfig(**sizes, num_dense_layers=2, layer_types=["full_attention"] * 2)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    attention.use_attention(model)
    assert model.config._attn_implementation == attention.NAME
    check_cache(model)


def test_a_window_stays_a_window():
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"num_hidden_layers": 2, "intermediate_size": 16, "vocab_size": 32}
    config = MistralConfig(**sizes, sliding_window=3, initializer_range=0.5)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    ids = torch.arange(2, 14)[None]
    expected = model(ids).logits
    attention.use_attention(model)
    cache = GrowingCache(2, 12)
    parts = [model(ids[:, :5], past_key_values=cache).logits]
    parts += [model(ids[:, t : t + 1], past_key_values=cache).logits for t in range(5, 12)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-4, atol=1e-5)
