"""What each architecture of transformers may be used for here, and that it is then read rightly.

A new architecture is a row of architectures.yaml. `forward_check`, `growing_cache.check_cache` and
`rope_limit` decide by numbers, so the table says what they have to come to.
"""

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from collated import collate
from ruamel.yaml import YAML
from tiny_checkpoints import BLOCKS, CPU, PAD, build, compute, plain_logprobs
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from stages.engines import growing_cache, transformers
from stages.engines.transformers import TransformersSampler
from stages.models import attention, model_tokenizer, policy, rope_limit, size
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
    positions: int = 0
    """Limit in its text_config, of a model whose own configuration has no numbers of layers."""


ROWS = YAML(typ="safe").load(Path(__file__).with_name("architectures.yaml"))
ARCHITECTURES = {name: Architecture(**row) for name, row in ROWS.items()}
DROPOUT = dict.fromkeys(
    ["attention_dropout", "hidden_dropout", "residual_dropout", "embedding_dropout", "dropout",
     "activation_dropout", "layerdrop", "attn_pdrop", "resid_pdrop", "embd_pdrop"], 0.5
)  # fmt: skip


def tiny(name: str, auto_class: Any = AutoModelForCausalLM) -> PreTrainedModel:
    row = ARCHITECTURES[name]
    torch.manual_seed(0)
    dropout = DROPOUT if row.has_dropout else {"attention_dropout": 0.0}
    numbers = row.numbers if row.positions else BLOCKS | dropout | row.numbers
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
        check_sampler(model, row.positions)


def check_sampler(model: PreTrainedModel, positions: int) -> None:
    """Its log-probs are those of whole rows: windows, scales and biases hold in the cache, too."""
    sampler = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=4)
    if positions:
        with pytest.raises(ValueError, match=f"{positions} positions"):
            list(sampler.next_logprobs([[3] * (positions + 1)], [1]))
    prompts = [[3, 9, 2, 8, 4, 17], [5]]
    drawn = sampler.sample(prompts, [0, 1], num_samples=2, temperature=1.0, max_new_tokens=6)
    for prompt, samples in zip(prompts, drawn, strict=True):
        for sample in samples:
            expected = plain_logprobs(model, prompt, sample.token_ids)
            torch.testing.assert_close(torch.tensor(sample.logprobs), expected, rtol=0, atol=2e-4)


def perturb(size: float, positions: slice = slice(None)) -> Any:
    """Changes the body's last hidden states, at these positions, by a share with a random sign."""
    stream = torch.Generator().manual_seed(0)

    def change(_module, _args, result):
        states = result.last_hidden_state
        signs = torch.zeros_like(states)
        signs[:, positions] = (
            torch.randint(2, states[:, positions].shape, generator=stream) * 2.0 - 1
        )
        result.last_hidden_state = states * (1 + size * signs)
        return result

    return lambda model: model.base_model.register_forward_hook(change) and None


def with_bias(scale: Any) -> Any:
    def change(model):
        model.lm_head = torch.nn.Linear(16, 32, bias=True)
        torch.nn.init.normal_(model.lm_head.bias)
        bias = model.lm_head.bias
        model.lm_head.register_forward_hook(lambda _m, _a, logits: scale(logits, bias))

    return change


def see_all(model):
    for layer in model.model.layers:
        layer.self_attn.is_causal = False
    mask = {"attention_mask": torch.ones(3, 1, 6, 6, dtype=torch.bool)}
    model.model.register_forward_pre_hook(
        lambda _module, args, named: (args, named | mask), with_kwargs=True
    )


def replace_head(head):
    return lambda model: setattr(model, "lm_head", head(model.lm_head))


CHANGES = {
    # Of a change of a Llama: what the refusal names; else the factor of its logits.
    "a head of several layers": (replace_head(torch.nn.Sequential), "found Sequential"),
    "a head of another width": (replace_head(lambda _: torch.nn.Linear(8, 32)), "16 and 8"),
    "a scaled product and a bias": (with_bias(lambda z, b: 0.5 * (z - b) + b), 0.5),
    "a scaled sum of product and bias": (with_bias(lambda z, _: 0.5 * z), "times a constant"),
    "a view of what comes after": (see_all, "causal model"),
    "an exception": (
        lambda model: model.model.register_forward_pre_hook(lambda *_: 1 / 0), "ZeroDivisionError"
    ),
    "damaged weights": (
        lambda model: model.get_input_embeddings().weight.data.fill_(torch.nan), "NaN"
    ),
    "rounding of a GPU": (perturb(2e-3), 1),  # SmolLM2-135M in float32 on an H200
    "what a mask changes": (perturb(0.1), "prompts share"),
    "what a mask changes at one position": (perturb(0.04, slice(3, 4)), "prompts share"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_computes_otherwise_is_refused(name):
    change, result = CHANGES[name]
    model = build("llama")
    model.config.tie_word_embeddings = False
    change(model)
    config = APART if name == "a view of what comes after" else compute()
    if isinstance(result, str):
        with pytest.raises(ValueError, match=result):
            policy.prepare_model(model, config, CPU)
    else:
        policy.prepare_model(model, config, CPU)
        assert getattr(model, "logit_factor", 1) == pytest.approx(result, rel=1e-6)


def test_a_reward_model_whose_layers_ignore_shared_rows_is_refused():
    model = tiny("llama, eager", AutoModelForSequenceClassification)
    policy.prepare_model(model, APART, CPU)
    with pytest.raises(ValueError, match="pack_tokens"):
        policy.prepare_model(model, compute(), CPU)


def test_checks_are_as_exact_under_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model = policy.prepare_model(tiny("granite"), compute(), CPU)
    assert model.logit_factor == pytest.approx(0.1, rel=1e-6)


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
    packed, *_ = Policy(model)(make_batch([[[short, whole]]], PAD, CPU), temperature=1.0)
    torch.testing.assert_close(packed, logprobs(model, short, whole))
    sampler = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=8)
    with pytest.raises(ValueError, match="13 tokens, the engine has 12"):
        sampler.sample([[3, 4]], [0], max_new_tokens=11, num_samples=1, temperature=1.0)
    # A row that has ended at the last position is decoded on beside those that have not.
    limits = [2, *[8] * 5]
    rows = sampler.sample([[*range(3, 13)], *[[3, 4]] * 5], range(6), max_new_tokens=limits,
                          num_samples=1, temperature=1.0)  # fmt: skip
    assert [len(row.token_ids) for (row,) in rows] == limits
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
