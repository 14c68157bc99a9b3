import copy

import pytest
import torch
from collated import collate
from tiny_checkpoints import (
    BLOCKS,
    CPU,
    FAMILIES,
    PAD,
    build,
    checkpoint,
    compute,
    load,
    plain_logprobs,
)
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
)

from stages.engines import growing_cache
from stages.models import forward_check, policy, size
from stages.models.batch import Group
from stages.models.policy import Policy

RECURRENT = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_state": 8, "mamba_chunk_size": 8}
INKLING = {
    "head_dim": 8, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 8,
    "d_rel": 4, "rel_extent": 16, "mlp_layer_types": ["dense", "dense"],
}  # fmt: skip
GPTJ = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "rotary_dim": 4}
APART = compute(row_tokens=0)
TEMPERATURE = 0.7


def tiny(kind, auto_class=AutoModelForCausalLM, attention="sdpa", **numbers):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **BLOCKS | numbers)
    return auto_class.from_config(config, attn_implementation=attention)


SCALED = {
    "cohere": (0.0625, {"logit_scale": 0.0625}),
    "cohere2": (0.25, {"logit_scale": 0.25, "head_dim": 8}),
    "granite": (0.1, {"logits_scaling": 10.0}),
    "falcon_h1": (0.04, {"lm_head_multiplier": 0.04, **RECURRENT}),
    "inkling_text": (1 / 24, INKLING),
    "llama": (1, {}),
    "gemma": (1, {"head_dim": 8}),
    "phi": (1, {}),  # its output layer has a bias
    "opt": (1, {"ffn_dim": 32, "word_embed_proj_dim": 16}),  # it calls a part of its body
}


@pytest.mark.parametrize("kind", SCALED)
def test_logits_that_are_scaled_give_the_log_probs_of_the_models_own(kind):
    factor, numbers = SCALED[kind]
    model = policy.prepare_model(tiny(kind, **numbers), APART, CPU).eval()
    assert getattr(model, "logit_factor", 1) == pytest.approx(factor, rel=1e-6)
    group = Group(prompt_ids=[3, 9, 2], completions=[[8, 4, 17, 6], [5, 30]], indices=[0, 1])
    actual, *_ = Policy(model)(collate([group], 0, PAD, CPU), temperature=TEMPERATURE)
    for row, ids in zip(actual, group.completions, strict=True):
        expected = plain_logprobs(model, list(group.prompt_ids), list(ids), TEMPERATURE)
        assert expected.std() > 0.05 * factor, "a flat distribution would say nothing"
        torch.testing.assert_close(row[: len(ids)], expected, rtol=1e-5, atol=1e-5)


# With the small weights of an untrained model no logit comes near a cap of 30.
CHANGED = {
    "gemma2": {"head_dim": 8, "initializer_range": 0.02},
    "gemma3_text": {"head_dim": 8, "final_logit_softcapping": 30.0, "initializer_range": 0.02},
    "recurrent_gemma": {"lru_width": 16, "num_hidden_layers": 3, "num_attention_heads": 2},
    "nanochat": {},
    "modernbert-decoder": {"bos_token_id": 0},
    "inkling_text": {**INKLING, "unpadded_vocab_size": 30},
}


@pytest.mark.parametrize("kind", CHANGED)
def test_logits_that_are_capped_cut_or_made_by_a_further_layer_are_refused(kind):
    with pytest.raises(ValueError, match=r"expected logits that are the output layer .* apart"):
        policy.prepare_model(tiny(kind, **CHANGED[kind]), APART, CPU)


def test_an_output_layer_of_another_kind_is_refused():
    model = build("llama")
    model.lm_head = torch.nn.Sequential(model.lm_head)
    with pytest.raises(ValueError, match=r"expected a linear output layer .* found Sequential"):
        policy.prepare_model(model, compute(), CPU)


def test_a_bias_added_to_a_scaled_product_is_not_taken_for_a_factor():
    model = build("llama")
    model.lm_head = torch.nn.Linear(16, 32, bias=True)
    torch.nn.init.normal_(model.lm_head.bias)
    policy.prepare_model(copy.deepcopy(model), compute(), CPU)
    # 0.5 (W h + b) is the output layer's of no multiple of h
    model.lm_head.register_forward_hook(lambda _module, _args, logits: 0.5 * logits)
    with pytest.raises(ValueError, match="times a constant"):
        policy.prepare_model(model, compute(), CPU)


# No entry of their configurations tells it.
IGNORE = {
    "eager_llama": lambda: tiny("llama", attention="eager"),
    "rwkv": lambda: tiny("rwkv", attention="eager", attention_hidden_size=16),
    "gptj": lambda: tiny("gptj", attention="eager", **GPTJ),
}


@pytest.mark.parametrize("kind", IGNORE)
def test_rows_that_share_are_refused_where_masks_and_positions_are_not_kept_to(kind):
    with pytest.raises(ValueError, match=r"compute\.pack_tokens to 0"):
        policy.prepare_model(IGNORE[kind](), compute(), CPU)
    with pytest.raises(ValueError, match=r"compute\.pack_tokens to 0"):
        policy.prepare_model(IGNORE[kind](), compute(row_tokens=0, pack_tokens=64), CPU)
    policy.prepare_model(IGNORE[kind](), APART, CPU)


def test_a_scalar_head_is_held_to_it_too():
    model = tiny("llama", AutoModelForSequenceClassification, attention="eager", num_labels=1)
    policy.prepare_model(model, APART, CPU)
    with pytest.raises(ValueError, match="completions or prompts share"):
        policy.prepare_model(model, compute(), CPU)


def test_a_model_that_sees_what_comes_after_is_refused():
    model = build("llama")
    for layer in model.model.layers:
        layer.self_attn.is_causal = False
    model.model.register_forward_pre_hook(
        lambda _module, args, named: (
            args,
            named | {"attention_mask": torch.ones(3, 1, 6, 6, dtype=torch.bool)},
        ),
        with_kwargs=True,
    )
    with pytest.raises(ValueError, match=r"whatever comes after.*Use a causal model"):
        policy.prepare_model(model, APART, CPU)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_check_leaves_no_trace(family, training):
    model = build(family).train(training)
    before = copy.deepcopy(model.state_dict())
    policy.prepare_model(model, compute(), CPU)
    torch.manual_seed(3)
    random = torch.get_rng_state()
    forward_check.check_forward(model, shared=True)
    forward_check.check_training(model)
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training is training
    assert all(module.training is training for module in model.modules())
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert not model.base_model._forward_hooks
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()
    assert not hasattr(model, "logit_factor")


RATES = dict.fromkeys(
    ["attention_dropout", "hidden_dropout", "residual_dropout", "embedding_dropout", "dropout",
     "activation_dropout", "layerdrop", "attn_pdrop", "resid_pdrop", "embd_pdrop"], 0.5
)  # fmt: skip
WITH_DROPOUT = {
    "opt": {"ffn_dim": 32, "word_embed_proj_dim": 16},
    "bloom": {"n_head": 4, "n_layer": 2},
    "starcoder2": {},
    "gpt_bigcode": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "seed_oss": {"head_dim": 8},
    "biogpt": {},
}


@pytest.mark.parametrize("kind", WITH_DROPOUT)
def test_dropout_is_off_wherever_an_architecture_has_it(kind):
    model = tiny(kind, attention=None, **RATES | WITH_DROPOUT[kind]).train()
    ids = torch.tensor([[3, 9, 2, 8, 4, 17]])
    with torch.no_grad():
        assert not torch.equal(model(ids).logits, model(ids).logits)
        policy.prepare_model(model, APART, CPU)
        trained = model.train()(ids).logits
        assert torch.equal(trained, model.eval()(ids).logits)


EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}
NOISY = {
    "phimoe": EXPERTS,  # chooses experts at random in training
    "mixtral": EXPERTS | {"router_jitter_noise": 0.2},
    "falcon": {"hidden_size": 32, "hidden_dropout": 0.1},
}


@pytest.mark.parametrize("kind", NOISY)
def test_noise_in_training_alone_is_refused(kind):
    numbers = {**NOISY[kind], "attention_dropout": 0.0}
    with pytest.raises(ValueError, match=r"in training as in evaluation.*dropout or jitter"):
        policy.prepare_model(tiny(kind, **numbers), APART, CPU)
    policy.prepare_model(tiny(kind, **numbers), APART, CPU, trained=False)
    if kind != "phimoe":
        quiet = dict.fromkeys(numbers.keys() & {"router_jitter_noise", "hidden_dropout"}, 0.0)
        policy.prepare_model(tiny(kind, **numbers | quiet), APART, CPU)


def test_the_checks_read_a_few_tokens_four_times(monkeypatch):
    model, seen = build("llama"), []
    model.model.register_forward_hook(
        lambda _module, _args, output: seen.append(output.last_hidden_state.shape[:2].numel())
    )
    policy.prepare_model(model, compute(), CPU)
    assert len(seen) == 4
    assert max(seen) <= 18


def test_under_autocast_it_compares_in_float32():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model = policy.prepare_model(tiny("granite", logits_scaling=10.0), compute(), CPU)
    assert model.logit_factor == pytest.approx(0.1, rel=1e-6)


def test_a_checkpoint_is_checked_where_it_is_loaded(monkeypatch):
    monkeypatch.setattr(forward_check, "TOLERANCE", -1.0)
    with pytest.raises(ValueError, match="expected logits"):
        load("llama")
    assert checkpoint("llama").exists()


@pytest.mark.parametrize("vocab_size", [3, 11])
def test_a_vocabulary_may_be_as_small_as_it_likes(vocab_size):
    model = tiny("llama", vocab_size=vocab_size)
    policy.prepare_model(model, compute(), CPU)
    growing_cache.check_cache(model)


OWN_ATTENTION = {
    "gptj": GPTJ,
    "bloom": {"n_head": 4, "n_layer": 2},
    "mpt": {"d_model": 16, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
    "gpt_neox_japanese": {"intermediate_multiple_size": 2},
    "gpt_oss": {
        "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4
    },
    "falcon": {"alibi": True, "hidden_size": 32},
    "llama4_text": {
        "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size_mlp": 32
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", OWN_ATTENTION)
def test_attention_of_an_architectures_own_is_used_in_plain_rows(tmp_path, kind):
    built = tiny(kind, attention=None, **OWN_ATTENTION[kind])
    built.save_pretrained(tmp_path)
    assert not policy.can_share_rows(built)
    model = policy.load_policy(tmp_path, APART, CPU).eval()
    group = Group(prompt_ids=[3, 9, 2], completions=[[8, 4, 17, 6, 4, 9], [5, 30]], indices=[0, 1])
    actual, *_ = Policy(model)(collate([group], 0, PAD, CPU), temperature=TEMPERATURE)
    for row, ids in zip(actual, group.completions, strict=True):
        expected = plain_logprobs(model, list(group.prompt_ids), list(ids), TEMPERATURE)
        torch.testing.assert_close(row[: len(ids)], expected, rtol=1e-5, atol=1e-5)
    growing_cache.check_cache(model)
    assert size.count_matrices(model).body > 0
    with pytest.raises(ValueError, match=rf"{kind}.*compute\.pack_tokens to 0"):
        policy.load_policy(tmp_path, compute(), CPU)


def test_what_a_model_stumbles_over_is_its_real_reason():
    model = build("llama")
    model.model.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ValueError, match=r"LlamaForCausalLM.*found ZeroDivisionError.*another"):
        policy.prepare_model(model, APART, CPU)
    model = build("llama")
    model.lm_head = torch.nn.Linear(8, 32)
    with pytest.raises(ValueError, match=r"expected logits .* found them of 16 and 8 numbers"):
        policy.prepare_model(model, APART, CPU)


@pytest.mark.parametrize(("size", "is_refused"), [(2e-3, False), (0.1, True)])
def test_rounding_of_a_gpu_is_accepted_and_what_masks_change_is_refused(size, is_refused):
    """2e-3: SmolLM2-135M in float32 on an H200."""
    model = tiny("llama")
    generator = torch.Generator().manual_seed(0)

    def perturb(_module, _args, output):
        states = output.last_hidden_state
        signs = torch.randint(2, states.shape, generator=generator) * 2 - 1
        output.last_hidden_state = states * (1 + size * signs)
        return output

    model.base_model.register_forward_hook(perturb)
    if is_refused:
        with pytest.raises(ValueError, match="expected the same hidden states"):
            policy.prepare_model(model, compute(), CPU)
    else:
        policy.prepare_model(model, compute(), CPU)
