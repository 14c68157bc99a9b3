"""What each architecture of transformers may be used for here, and that it is then read rightly.

A new architecture is a row of ARCHITECTURES. `forward_check`, `growing_cache.check_cache` and
`rope_limit` decide by numbers, so the table says what they have to come to.
"""

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from collated import collate
from tiny_checkpoints import BLOCKS, CPU, PAD, build, compute, plain_logprobs
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from stages.engines import growing_cache, transformers
from stages.engines.transformers import TransformersSampler
from stages.models import attention, forward_check, model_tokenizer, policy, rope_limit, size
from stages.models.batch import Group, make_batch
from stages.models.policy import Policy

APART = compute(row_tokens=0)
TEMPERATURE = 0.7
GROUP = Group(prompt_ids=[3, 9, 2], completions=[[8, 4, 17, 6, 4, 9], [5, 30]], indices=[0, 1])


@dataclass(frozen=True)
class Architecture:
    """With what a refusal names: of training in rows apart, of shared rows, of the sampler."""

    numbers: dict[str, Any] = field(default_factory=dict)
    apart: str = ""
    shared: str = ""
    cache: str = ""
    factor: float = 1.0
    """That the model multiplies its logits with."""
    implementation: str | None = "sdpa"
    has_dropout: bool = False
    only_trained: bool = False
    """Refused only where it is trained."""


HEADS = "output layer"  # further layers, caps and cuts behind the output layer
NOISE = "in training"
OWN = "pack_tokens"  # attention of its own, or windows
CACHE = "engine: vllm"
DROPOUT = dict.fromkeys(
    ["attention_dropout", "hidden_dropout", "residual_dropout", "embedding_dropout", "dropout",
     "activation_dropout", "layerdrop", "attn_pdrop", "resid_pdrop", "embd_pdrop"], 0.5
)  # fmt: skip
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_state": 8, "mamba_chunk_size": 8}
INKLING = {"head_dim": 8, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2,
           "swa_head_dim": 8, "d_rel": 4, "rel_extent": 16,
           "mlp_layer_types": ["dense", "dense"]}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}
FEW = {"num_experts": 2, "num_experts_per_tok": 1}
SMALL = {"head_dim": 8, "initializer_range": 0.02}  # no logit of these comes near a cap
DROPPING = {"implementation": None, "has_dropout": True}
ARCHITECTURES = {
    "llama": Architecture(),
    "qwen3": Architecture({"head_dim": 8}),
    "gemma": Architecture({"head_dim": 8}),
    "phi": Architecture(),  # its output layer has a bias
    "opt": Architecture({"ffn_dim": 32, "word_embed_proj_dim": 16}),  # it calls a part of its body
    "mistral": Architecture({"sliding_window": None}),
    "deepseek_v3": Architecture(
        {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
         "v_head_dim": 6, "first_k_dense_replace": 2, "head_dim": 4, "num_key_value_heads": 4}
    ),
    "afmoe": Architecture({"head_dim": 4, "num_dense_layers": 2,
                           "layer_types": ["full_attention"] * 2}),
    # Logits times a constant.
    "cohere": Architecture({"logit_scale": 0.0625}, factor=0.0625),
    "cohere2": Architecture({"logit_scale": 0.25, "head_dim": 8}, shared=OWN, factor=0.25),
    "granite": Architecture({"logits_scaling": 10.0, "attention_multiplier": 0.1}, factor=0.1),
    "falcon_h1": Architecture({"lm_head_multiplier": 0.04, **MAMBA}, shared=OWN, cache=CACHE,
                              factor=0.04),
    "inkling_text": Architecture(INKLING, shared=OWN, cache=CACHE, factor=1 / 24),
    # Logits that are capped, cut, or of a further layer.
    "gemma2": Architecture(SMALL, apart=HEADS),
    "gemma3_text": Architecture(SMALL | {"final_logit_softcapping": 30.0}, apart=HEADS),
    "recurrent_gemma": Architecture(
        {"lru_width": 16, "num_hidden_layers": 3, "num_attention_heads": 2}, apart=HEADS
    ),
    "nanochat": Architecture(apart=HEADS),
    "modernbert-decoder": Architecture({"bos_token_id": 0}, apart=HEADS),
    "inkling_text, cut": Architecture(INKLING | {"unpadded_vocab_size": 30}, apart=HEADS),
    # Masks and positions that are not kept to; no entry of a configuration says so.
    "llama, eager": Architecture(implementation="eager", shared=OWN),
    "rwkv": Architecture({"attention_hidden_size": 16}, implementation="eager", shared=OWN,
                         cache=CACHE),
    # Attention of its own, which says so.
    "gptj": Architecture(GPT2 | {"rotary_dim": 4}, implementation=None, shared=OWN),
    "bloom": Architecture({"n_head": 4, "n_layer": 2}, implementation=None, shared=OWN),
    "mpt": Architecture({"d_model": 16, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
                        implementation=None, shared=OWN),
    "gpt_neox_japanese": Architecture({"intermediate_multiple_size": 2}, implementation=None,
                                      shared=OWN),
    "gpt_oss": Architecture(EXPERTS | {"sliding_window": 4}, implementation=None, shared=OWN),
    "falcon, alibi": Architecture({"alibi": True, "hidden_size": 32}, implementation=None,
                                  shared=OWN),
    "llama4_text": Architecture(
        {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1,
         "intermediate_size_mlp": 32}, implementation=None, shared=OWN
    ),
    "mistral, windows": Architecture({"sliding_window": 4}, shared=OWN),
    "qwen3, some windows": Architecture(
        {"head_dim": 8, "sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1},
        shared=OWN,
    ),
    "gemma3_text, windows": Architecture(
        {"head_dim": 8, "sliding_window": 3, "layer_types": ["sliding_attention"] * 2}, shared=OWN
    ),
    # Dropout, wherever it is.
    "opt, dropout": Architecture({"ffn_dim": 32, "word_embed_proj_dim": 16}, **DROPPING),
    "bloom, dropout": Architecture({"n_head": 4, "n_layer": 2}, shared=OWN, **DROPPING),
    "starcoder2": Architecture(**DROPPING),
    "gpt_bigcode": Architecture(GPT2, **DROPPING),
    "seed_oss": Architecture({"head_dim": 8}, **DROPPING),
    "biogpt": Architecture({}, **DROPPING),
    # Noise in training that is neither.
    "phimoe": Architecture(EXPERTS, apart=NOISE, only_trained=True),  # draws experts
    "mixtral": Architecture(EXPERTS | {"router_jitter_noise": 0.2}, apart=NOISE, only_trained=True),
    "mixtral, quiet": Architecture(EXPERTS | {"router_jitter_noise": 0.0}),
    "falcon": Architecture({"hidden_size": 32, "hidden_dropout": 0.1}, apart=NOISE,
                           only_trained=True),
    # State that is no cache of keys and values, or no cache at all.
    "qwen3_next": Architecture(
        {**FEW, "head_dim": 8, "moe_intermediate_size": 16, "decoder_sparse_step": 9,
         "shared_expert_intermediate_size": 16, "linear_key_head_dim": 8, "linear_num_key_heads": 2,
         "linear_value_head_dim": 8, "linear_num_value_heads": 4,
         "layer_types": ["linear_attention", "full_attention"]}, shared=OWN, cache=CACHE,
    ),
    "jamba": Architecture(
        {**FEW, "use_mamba_kernels": False, "mamba_d_state": 8, "mamba_dt_rank": 4,
         "attn_layer_period": 2, "attn_layer_offset": 1}, shared=OWN, cache=CACHE
    ),
    "mamba": Architecture({"state_size": 8}, implementation=None, shared=OWN, cache=CACHE),
    "openai-gpt": Architecture(GPT2, implementation=None, shared=OWN, cache=CACHE),
}  # fmt: skip


def tiny(name: str, auto_class: Any = AutoModelForCausalLM, **more: Any) -> PreTrainedModel:
    row = ARCHITECTURES[name]
    torch.manual_seed(0)
    numbers = (
        BLOCKS
        | {"attention_dropout": 0.0}
        | (DROPOUT if row.has_dropout else {})
        | row.numbers
        | more
    )
    config = AutoConfig.for_model(name.partition(",")[0], **numbers)
    return auto_class.from_config(config, attn_implementation=row.implementation)


def check_logprobs(model: PreTrainedModel, row_tokens: int) -> None:
    """Those of the model's own logits; the same, to the bit, in training as in evaluation."""
    batch = collate([GROUP], row_tokens, PAD, CPU)
    trained, *_ = Policy(model.train())(batch, temperature=TEMPERATURE)
    actual, *_ = Policy(model.eval())(batch, temperature=TEMPERATURE)
    assert torch.equal(trained, actual)
    for values, ids in zip(actual, GROUP.completions, strict=True):
        expected = plain_logprobs(model, [*GROUP.prompt_ids], [*ids], TEMPERATURE)
        torch.testing.assert_close(values[: len(ids)], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_read_as_transformers_reads_it_or_refused(name):
    row = ARCHITECTURES[name]
    built = tiny(name)
    kept = copy.deepcopy(built)
    if row.has_dropout:
        ids = torch.tensor([[3, 9, 2, 8, 4, 17]])
        assert not torch.equal(built.train()(ids).logits, built(ids).logits)
    if row.apart:
        with pytest.raises(ValueError, match=row.apart):
            policy.prepare_model(built, APART, CPU)
        if row.only_trained:
            policy.prepare_model(kept, APART, CPU, trained=False)
        return
    model = policy.prepare_model(built, APART, CPU)
    assert getattr(model, "logit_factor", 1) == pytest.approx(row.factor, rel=1e-6)
    assert (model.config._attn_implementation == attention.NAME) == (
        row.implementation != "eager"
        and model._supports_sdpa
        and model._can_set_attn_implementation()
    )
    check_logprobs(model, 0)
    assert size.count_matrices(model).body > 0
    if row.implementation != "eager":
        assert policy.can_share_rows(kept) == (not row.shared)
    if row.shared:
        for changes in ({}, {"row_tokens": 0, "pack_tokens": 64}):
            with pytest.raises(ValueError, match=row.shared):
                policy.prepare_model(copy.deepcopy(kept), compute(**changes), CPU)
    else:
        check_logprobs(policy.prepare_model(kept, compute(), CPU), 64)
    if row.cache:
        words = model_tokenizer.train_tokenizer(["a few words"], 700)
        with pytest.raises(ValueError, match=f"{type(model).__name__}.*{row.cache}"):
            transformers.make_sampler(model, words, max_batch=4)
    else:
        growing_cache.check_cache(model)
        check_sampler(model)


def check_sampler(model: PreTrainedModel) -> None:
    """Its log-probs are those of whole rows: windows, scales and biases hold in the cache, too."""
    sampler = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=4)
    prompts = [[3, 9, 2, 8, 4, 17], [5]]
    drawn = sampler.sample(prompts, [0, 1], num_samples=2, temperature=1.0, max_new_tokens=6)
    for prompt, samples in zip(prompts, drawn, strict=True):
        for sample in samples:
            expected = plain_logprobs(model, prompt, sample.token_ids)
            torch.testing.assert_close(torch.tensor(sample.logprobs), expected, rtol=0, atol=2e-4)


def bend(model: PreTrainedModel, output: Any) -> None:
    """Have the body's last hidden states be changed by a function."""

    def hook(_module, _args, result):
        result.last_hidden_state = output(result.last_hidden_state)
        return result

    model.base_model.register_forward_hook(hook)  # fmt: skip


def perturb(size: float, *, everywhere: bool = True) -> Any:
    stream = torch.Generator().manual_seed(0)

    def change(states):
        signs = torch.randint(2, states.shape, generator=stream) * 2 - 1
        if not everywhere:  # of one position
            signs[:, :3] = signs[:, 4:] = 0
        return states * (1 + size * signs)

    return lambda model: bend(model, change)


def with_bias(scale: Any) -> Any:
    def change(model):
        model.lm_head = torch.nn.Linear(16, 32, bias=True)
        torch.nn.init.normal_(model.lm_head.bias)
        bias = model.lm_head.bias
        model.lm_head.register_forward_hook(lambda _m, _a, logits: scale(logits, bias))

    return change  # fmt: skip


def see_all(model):
    for layer in model.model.layers:
        layer.self_attn.is_causal = False
    mask = {"attention_mask": torch.ones(3, 1, 6, 6, dtype=torch.bool)}
    model.model.register_forward_pre_hook(
        lambda _module, args, named: (args, named | mask), with_kwargs=True
    )


def spoil(model):
    model.get_input_embeddings().weight.data.fill_(torch.nan)


def replace_head(head):
    return lambda model: setattr(model, "lm_head", head(model.lm_head))


CHANGES = {
    "a head of several layers": (replace_head(torch.nn.Sequential), "found Sequential"),
    "a head of another width": (replace_head(lambda _: torch.nn.Linear(8, 32)), "16 and 8"),
    "a scaled product and a bias": (with_bias(lambda z, b: 0.5 * (z - b) + b), ""),
    "a scaled sum of product and bias": (with_bias(lambda z, _: 0.5 * z), "times a constant"),
    "a view of what comes after": (see_all, "causal model"),
    "an exception": (
        lambda model: model.model.register_forward_pre_hook(lambda *_: 1 / 0), "ZeroDivisionError"
    ),
    "damaged weights": (spoil, "NaN"),
    "rounding of a GPU": (perturb(2e-3), ""),  # SmolLM2-135M in float32 on an H200
    "what a mask changes": (perturb(0.1), "hidden states"),
    "what a mask changes at one position": (perturb(0.1, everywhere=False), "hidden states"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_computes_otherwise_is_refused(name):
    change, reason = CHANGES[name]
    model = build("llama")
    model.config.tie_word_embeddings = False
    change(model)
    config = APART if name == "a view of what comes after" else compute()
    if reason:
        with pytest.raises(ValueError, match=reason):
            policy.prepare_model(model, config, CPU)
    else:
        policy.prepare_model(model, config, CPU)


def test_a_scalar_head_is_checked_too():
    model = tiny("llama, eager", AutoModelForSequenceClassification, num_labels=1)
    policy.prepare_model(model, APART, CPU)
    with pytest.raises(ValueError, match="pack_tokens"):
        policy.prepare_model(model, compute(), CPU)


@pytest.mark.parametrize("training", [True, False])
def test_checks_leave_no_trace(training):
    model = policy.prepare_model(build("qwen3"), compute(), CPU).train(training)
    model.model.norm.train(not training)
    modes = [module.training for module in model.modules()]
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    forward_check.check_forward(model, shared=True)
    forward_check.check_training(model)
    growing_cache.check_cache(model)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in before.items())
    assert not model.base_model._forward_hooks
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not hasattr(model, "logit_factor")


def test_checks_are_of_float32_under_autocast_and_of_bfloat16_weights_as_they_are():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model = policy.prepare_model(tiny("granite"), compute(), CPU)
    assert model.logit_factor == pytest.approx(0.1, rel=1e-6)
    growing_cache.check_cache(tiny("llama").bfloat16())


@pytest.mark.parametrize("vocab_size", [3, 11])
def test_a_vocabulary_may_be_small(vocab_size):
    model = policy.prepare_model(tiny("llama", vocab_size=vocab_size), compute(), CPU)
    growing_cache.check_cache(model)


ROPES = {
    "longrope": ("phi3", 128, {
        "rope_type": "longrope", "rope_theta": 100.0, "original_max_position_embeddings": 12,
        "short_factor": [1.0] * 2, "long_factor": [4.0] * 2,
    }),
    "dynamic": ("llama", 12, {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}),
    "linear": ("llama", 128, {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}),
}  # fmt: skip


def make_rope_config(name: str) -> Any:
    kind, positions, rope = ROPES[name]
    numbers = {"max_position_embeddings": positions, "original_max_position_embeddings": 12}
    return AutoConfig.for_model(kind, **BLOCKS | numbers, rope_parameters=dict(rope))


@pytest.mark.parametrize("name", ["longrope", "dynamic"])
def test_positions_that_a_long_neighbour_would_change_end_before(name, tmp_path):
    torch.manual_seed(0)
    built = AutoModelForCausalLM.from_config(make_rope_config(name), attn_implementation="sdpa")
    short, whole, long = (
        Group(prompt_ids=[3, 4], completions=[[*range(5, 5 + n)]], indices=[0]) for n in (8, 10, 11)
    )

    def logprobs(model, *groups):
        return Policy(model)(collate(groups, 0, PAD, CPU), temperature=1.0)[0]

    unchecked = copy.deepcopy(built).eval()
    alone = logprobs(unchecked, short)[0, :8]
    assert (logprobs(unchecked, short, long)[0, :8] - alone).abs().max() > 1e-3
    model = policy.prepare_model(built, compute(), CPU)
    torch.testing.assert_close(logprobs(model, short, whole)[0, :8], alone, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="12 tokens, found one of 13"):
        logprobs(model, short, long)
    # A packed row may be longer: positions start anew.
    packed, *_ = Policy(model)(make_batch([[short, whole]], PAD, CPU), temperature=1.0)
    torch.testing.assert_close(packed, logprobs(model, short, whole))
    sampler = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=8)
    settings = {"num_samples": 1, "temperature": 1.0}
    assert sampler.sample([[3, 4]], [0], max_new_tokens=10, **settings)
    with pytest.raises(ValueError, match="13 tokens, the engine has 12"):
        sampler.sample([[3, 4]], [0], max_new_tokens=11, **settings)
    built.save_pretrained(tmp_path)
    model_tokenizer.train_tokenizer(["a"], 700).save_pretrained(tmp_path)
    facts = size.model_facts({"path": str(tmp_path), "revision": None})
    assert (facts.positions, facts.shares_rows) == (12, True)


def test_the_strictest_rope_of_several_types_of_layers_counts():
    config = AutoConfig.for_model("gemma3_text", max_position_embeddings=64)
    for pair in (("dynamic", "longrope"), ("longrope", "dynamic"), ("linear", "longrope")):
        layers = ("full_attention", "sliding_attention")
        config.rope_parameters = {
            layer: dict(ROPES[name][2]) for layer, name in zip(layers, pair, strict=True)
        }
        assert rope_limit.get_rope_limit(config) == 12
    for config in (make_rope_config("linear"), build("llama").config, build("gpt2").config):
        assert rope_limit.get_rope_limit(config) is None
