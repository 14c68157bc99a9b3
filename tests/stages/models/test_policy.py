import itertools
import json
import re

import pytest
import torch
from chat_tokenizers import make_tokenizer
from collated import collate
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tiny_checkpoints import (
    BLOCKS,
    CPU,
    EOS,
    FAMILIES,
    PAD,
    build,
    checkpoint,
    compute,
    gradients,
    load,
    load_exact,
    plain_logprobs,
    random_ids,
)
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GenerationConfig,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from stages.algorithms import logprobs as chunked
from stages.engines import transformers as engine
from stages.models import attention, model_files, model_tokenizer, policy
from stages.models.batch import Group, micro_batches
from stages.models.policy import Policy, load_pretrained


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_is_read_as_it_was_saved_tied_ones_included(family):
    model = load_pretrained(AutoModelForCausalLM, checkpoint(family), new=frozenset())
    expected = build(family).state_dict()
    for name, weight in model.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, expected[name]), name


def test_a_checkpoint_that_lacks_a_weight_is_refused_by_its_name(tmp_path):
    build("llama").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"missing .*model\.layers\.1\.mlp\.up_proj\.weight"):
        load_pretrained(AutoModelForCausalLM, tmp_path, new=frozenset())


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("model.layers.0.self_attn.q_proj.bias", True),  # attention_bias is false
        ("score.weight", True),  # a reward model's head
        ("model.layers.2.mlp.up_proj.weight", True),  # a layer more than num_hidden_layers
        ("model.layers.0.self_attn.rotary_emb.inv_freq", False),  # of older versions
        ("vision_tower.embeddings.weight", False),
        ("transformer.h.0.attn.masked_bias", False),  # causal masks of GPT-2 and its kin
        ("transformer.h.0.attn.attention.bias", False),
        ("decoder.version", False),  # OPT
    ],
)
def test_a_weight_that_the_model_has_no_place_for_is_refused(tmp_path, name, is_refused):
    build("llama").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors") | {name: torch.ones(16)}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    if is_refused:
        with pytest.raises(ValueError, match=f"config.json has no place: .*{re.escape(name)}"):
            load_pretrained(AutoModelForCausalLM, tmp_path, new=frozenset())
    else:
        load_pretrained(AutoModelForCausalLM, tmp_path, new=frozenset())


@pytest.mark.parametrize("method", ["fp8", "bitsandbytes", "gptq", "unknown"])
def test_quantised_weights_are_refused(tmp_path, method):
    build("qwen3").save_pretrained(tmp_path)
    quantisation = {"quant_method": method, "weight_block_size": [16, 16]}
    edit_json(tmp_path / "config.json", quantization_config=quantisation)
    with pytest.raises(ValueError, match=rf"quantised weights \({method}.*dequantise them"):
        load_pretrained(AutoModelForCausalLM, tmp_path, new=frozenset())


def test_a_generation_config_that_cannot_be_saved_is_refused_before_training(tmp_path):
    """As Vicuna's: a temperature, and no do_sample."""
    build("llama").save_pretrained(tmp_path)
    edit_json(tmp_path / "generation_config.json", temperature=0.9, top_p=0.6)
    with pytest.raises(
        ValueError, match=r"generation_config\.json that can be saved with .*beside"
    ):
        policy.load_policy(tmp_path, compute(), CPU)
    policy.load_policy(tmp_path, compute(), CPU, trained=False)
    edit_json(tmp_path / "generation_config.json", do_sample=True)
    policy.load_policy(tmp_path, compute(), CPU)


def test_adapters_beside_a_model_are_refused_and_not_read_in_its_place(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(checkpoint("llama"))
    get_peft_model(model, LoraConfig(r=2, target_modules="all-linear")).save_pretrained(tmp_path)
    build("llama", seed=1).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="LoRA adapters"):
        load_pretrained(AutoModelForCausalLM, tmp_path, new=frozenset())
    with pytest.raises(ValueError, match=r"LoRA adapters beside it.*merge_and_unload"):
        model_files.check_model_files(str(tmp_path))


def test_a_policy_read_as_a_reward_model_lacks_its_head_unless_a_new_one_is_meant():
    with pytest.raises(ValueError, match=r"score\.weight"):
        load_pretrained(
            AutoModelForSequenceClassification, checkpoint("llama"), new=frozenset(), num_labels=1
        )
    head = frozenset({"score.weight"})
    model = load_pretrained(
        AutoModelForSequenceClassification, checkpoint("llama"), new=head, num_labels=1
    )
    assert model.get_parameter("score.weight").shape == (1, 16)


def test_pickled_weights_are_never_read(tmp_path):
    model = build("llama")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="in safetensors, found Error no file named"):
        load_pretrained(AutoModelForCausalLM, tmp_path, new=frozenset())


TEMPERATURE = 0.8
# (prompt length, lengths of its completions)
SHAPES = [(5, [3, 1, 7]), (9, [2]), (1, [4, 4])]


def make_groups(shapes=SHAPES):
    generator = torch.Generator().manual_seed(0)
    groups, number = [], 0
    for prompt_length, lengths in shapes:
        groups.append(
            Group(
                prompt_ids=random_ids(generator, prompt_length),
                completions=[random_ids(generator, length) for length in lengths],
                indices=range(number, number + len(lengths)),
            )
        )
        number += len(lengths)
    return groups


def plain(model, groups):
    """Log-probs of each completion, and the gradients of a weighted sum of them."""
    model.zero_grad()
    rows = [
        plain_logprobs(model, list(group.prompt_ids), list(ids), TEMPERATURE)
        for group in groups
        for ids in group.completions
    ]
    sum((1 + i) * row.sum() for i, row in enumerate(rows)).backward()
    return [row.detach() for row in rows], gradients(model)


def batched(model, groups, **changes):
    """The same through micro-batches."""
    model.zero_grad()
    rows = {}
    for batch in micro_batches(groups, compute(**changes), PAD, CPU):
        logprobs, *_ = Policy(model)(batch, temperature=TEMPERATURE)
        weights = 1.0 + torch.tensor(batch.indices)
        (weights[:, None] * logprobs).sum().backward()
        for index, row, mask in zip(batch.indices, logprobs.detach(), batch.mask, strict=True):
            assert (row[~mask] == 0).all()
            rows[index] = row[mask]
    return [rows[index] for index in sorted(rows)], gradients(model)


def num_rows(groups, **changes):
    return sum(len(b.input_ids) for b in micro_batches(groups, compute(**changes), PAD, CPU))


def assert_same(found, expected):
    for row, other in zip(found[0], expected[0], strict=True):
        torch.testing.assert_close(row, other, rtol=1e-6, atol=1e-6)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        # In float64 but for the RMS norms, which transformers computes in float32.
        atol = 1e-6 * gradient.abs().max().item()
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-5, atol=atol, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_and_gradients_are_those_of_the_models_own_logits_however_rows_are_packed(family):
    model = load(family).double()
    groups = make_groups()
    expected = plain(model, groups)
    for row_tokens in (0, 10, 16, 64):
        for max_tokens in (1, 30, 4096):
            actual = batched(model, groups, row_tokens=row_tokens, max_tokens=max_tokens)
            assert_same(actual, expected)
    assert_same(batched(model, groups[::-1]), expected)


# Of uneven length, as (prompt length, lengths of its completions).
PACKED = {
    "demonstrations": [(3, [9]), (12, [4]), (1, [1]), (6, [2]), (2, [8]), (7, [7]), (4, [1])],
    "pairs": [(3, [9, 2]), (8, [4, 4]), (1, [1, 6]), (6, [2, 3]), (2, [1, 1])],
    "groups": [(3, [9, 2, 5, 1]), (8, [4, 4]), (1, [1, 6, 3]), (6, [2]), (2, [1, 1, 1, 1])],
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", PACKED)
def test_packed_rows_give_the_log_probs_and_gradients_of_rows_of_their_own(family, kind):
    model = load_exact(family)
    groups = make_groups(PACKED[kind])
    expected = batched(model, groups, row_tokens=0)
    for row_tokens, pack_tokens in itertools.product((0, 64), (14, 30, 128)):
        for max_tokens in (40, 4096):
            changes = {"row_tokens": row_tokens, "max_tokens": max_tokens}
            unpacked = num_rows(groups, **changes)
            changes["pack_tokens"] = pack_tokens
            assert num_rows(groups, **changes) < unpacked
            logprobs, actual = batched(model, groups, **changes)
            for row, other in zip(logprobs, expected[0], strict=True):
                torch.testing.assert_close(row, other, rtol=1e-10, atol=1e-12)
            assert actual.keys() == expected[1].keys()
            for name, gradient in expected[1].items():
                atol = 1e-10 * gradient.abs().max().item()
                torch.testing.assert_close(actual[name], gradient, rtol=1e-10, atol=atol, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_leaks_between_neighbours_of_a_packed_row(family):
    model = load(family)
    # The longer neighbour stands before it in the row, the shorter one after it.
    first, *others = make_groups([(5, [3, 4]), (9, [6]), (3, [2, 1])])
    changed = [
        Group(
            prompt_ids=[31 - token for token in group.prompt_ids],
            completions=[[31 - token for token in ids] for ids in group.completions],
            indices=group.indices,
        )
        for group in others
    ]
    result = []
    for groups in ([first, *others], [first, *changed]):
        (batch,) = micro_batches(groups, compute(pack_tokens=64), PAD, CPU)
        assert len(batch.input_ids) == 1
        logprobs, *_ = Policy(model)(batch, temperature=1.0)
        result.append([row for _, row in sorted(zip(batch.indices, logprobs, strict=True))])
    assert all(torch.equal(result[0][i], result[1][i]) for i in first.indices)
    assert not any(torch.equal(result[0][i], result[1][i]) for i in (2, 3, 4))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_neighbours_and_the_place_in_a_packed_row_do_not_matter(family):
    model = load_exact(family)
    first = make_groups([(5, [3, 4])])[0]
    expected, _ = batched(model, [first])
    # A longer neighbour stands before it, a shorter one after it.
    for prompt_length, length in ((9, 7), (1, 1), (40, 20)):
        other = Group(prompt_ids=[7] * prompt_length, completions=[[8] * length], indices=[2])
        assert num_rows([first, other], pack_tokens=128) == 1
        actual, _ = batched(model, [first, other], pack_tokens=128)
        for row, alone in zip(actual, expected, strict=False):
            torch.testing.assert_close(row, alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_more_padding_changes_nothing(family):
    model = load(family).double()
    short, long = make_groups()[:2]
    for row_tokens in (0, 64):
        alone = collate([short], row_tokens, PAD, CPU)
        wide = Group(prompt_ids=[5] * 60, completions=[[6] * 40], indices=[9])
        padded = collate([short, wide, long], row_tokens, PAD, CPU)
        expected, *_ = Policy(model)(alone, temperature=1.0)
        actual, *_ = Policy(model)(padded, temperature=1.0)
        torch.testing.assert_close(actual[:3, :7], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_left_padded_rows_with_an_attention_mask_have_the_same_log_probs(family):
    model = load(family).double()
    groups = make_groups()
    rows = [[*group.prompt_ids, *ids] for group in groups for ids in group.completions]
    width = max(len(row) for row in rows) + 3
    ids = torch.tensor([[PAD] * (width - len(row)) + row for row in rows])
    attention = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    logits = model(
        ids, attention_mask=attention, position_ids=(attention.cumsum(1) - 1).clamp(min=0)
    ).logits
    every = (logits[:, :-1] / TEMPERATURE).log_softmax(-1)
    left = every.gather(-1, ids[:, 1:, None]).squeeze(-1)
    lengths = [len(ids) for group in groups for ids in group.completions]
    ours, _ = batched(model, groups)
    for row, length, result in zip(left, lengths, ours, strict=True):
        torch.testing.assert_close(row[-length:], result, rtol=1e-9, atol=1e-9)


def test_the_entropy_is_that_of_the_tempered_distribution():
    model = load("llama").double()
    group = make_groups()[1]
    batch = collate([group], 64, PAD, CPU)
    _, entropies = Policy(model)(batch, temperature=TEMPERATURE)
    logits = model(torch.tensor([[*group.prompt_ids, *group.completions[0]]])).logits
    expected = torch.distributions.Categorical(logits=logits[0, 8:-1] / TEMPERATURE).entropy()
    torch.testing.assert_close(entropies[0], expected, rtol=1e-9, atol=1e-9)


def test_only_predicting_positions_reach_the_output_matrix(monkeypatch):
    seen = []
    original = chunked.linear

    def spy(hidden, *args):
        seen.append(len(hidden))
        return original(hidden, *args)

    monkeypatch.setattr(chunked, "linear", spy)
    groups = make_groups()
    Policy(load("llama"))(collate(groups, 64, PAD, CPU), temperature=1.0)
    assert seen == [3 + 1 + 7 + 2 + 4 + 4]


@pytest.mark.parametrize("family", FAMILIES)
def test_no_dropout_is_left_so_train_and_eval_mode_agree_bit_for_bit(family):
    model = load(family)
    batch = collate(make_groups(), 64, PAD, CPU)
    trained = Policy(model.train())(batch, temperature=1.0)[0]
    evaluated = Policy(model.eval())(batch, temperature=1.0)[0]
    assert torch.equal(trained, evaluated)
    assert all(module.p == 0.0 for module in model.modules() if isinstance(module, nn.Dropout))


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_checkpointing_gives_the_same_gradients(family):
    groups = make_groups()
    plainly = batched(load(family).train(), groups)
    checkpointed = batched(load(family, gradient_checkpointing=True).train(), groups)
    for name, gradient in plainly[1].items():
        torch.testing.assert_close(checkpointed[1][name], gradient, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_policy_is_safetensors_that_transformers_loads_as_the_same_function(
    family, tmp_path
):
    model = load(family)
    words = model_tokenizer.train_tokenizer(["a few words"], 700)
    policy.save_model(model, words, tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    assert not list(tmp_path.glob("*.bin"))
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.tensor([[3, 4, 5]])
    assert torch.equal(again.eval()(ids).logits, model.eval()(ids).logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_float32_the_files_are_those_of_transformers_to_the_byte(family, tmp_path):
    load(family).save_pretrained(tmp_path / "theirs")
    policy.save_model(load(family), model_tokenizer.train_tokenizer(["1"], 700), tmp_path / "ours")
    for theirs in (tmp_path / "theirs").iterdir():
        assert (tmp_path / "ours" / theirs.name).read_bytes() == theirs.read_bytes(), theirs.name


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_in_bfloat16_the_file_has_each_weight_rounded_once_and_the_config_says_so(
    family, tmp_path
):
    model = load(family)
    policy.save_model(model, model_tokenizer.train_tokenizer(["1"], 700), tmp_path, "bfloat16")
    saved = load_file(tmp_path / "model.safetensors")
    assert saved.keys() == dict(model.named_parameters()).keys()
    for name, weight in saved.items():
        assert torch.equal(weight, model.get_parameter(name).bfloat16()), name
        assert model.get_parameter(name).dtype == torch.float32
    assert AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto").dtype == torch.bfloat16
    assert policy.load_policy(tmp_path, compute(), CPU).dtype == torch.float32


@pytest.mark.parametrize("family", FAMILIES)
def test_in_float32_a_frozen_model_computes_the_same_bits(family):
    # torch multiplies by a weight that asks for a gradient in another way than by one that does not
    models = [
        policy.load_policy(checkpoint(family), compute(), CPU, trained=item)
        for item in (True, False)
    ]
    ids = torch.tensor([[2, 3, 4, 5, 6], [7, 8, 9, 10, 11]])
    with torch.no_grad():
        trained, frozen = (model(ids, logits_to_keep=1).logits for model in models)
    assert torch.equal(trained, frozen)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_frozen_model_has_its_weights_in_the_compute_dtype(family):
    batch = collate(make_groups(), 64, PAD, CPU)
    trained = policy.load_policy(checkpoint(family), compute(dtype="bfloat16"), CPU)
    frozen = policy.load_policy(checkpoint(family), compute(dtype="bfloat16"), CPU, trained=False)
    assert {weight.dtype for weight in trained.parameters()} == {torch.float32}
    assert {weight.dtype for weight in frozen.parameters()} == {torch.bfloat16}
    frequencies = zip(trained.buffers(), frozen.buffers(), strict=True)
    assert all(torch.equal(*pair) for pair in frequencies)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        expected = Policy(trained)(batch, temperature=1.0).logprobs
        actual = Policy(frozen)(batch, temperature=1.0).logprobs
    assert actual.dtype == torch.float32
    # Random weights of 0.3 make loud logits: some 8 bits of numbers around 10.
    assert (actual - expected).abs().mean() < 0.05
    plain = policy.load_policy(checkpoint(family), compute(), CPU, trained=False)
    assert {weight.dtype for weight in plain.parameters()} == {torch.float32}


def test_decoding_leaves_special_tokens_out():
    words = model_tokenizer.train_tokenizer(["a few words"], 700)
    ids = words("a few words")["input_ids"]
    assert model_tokenizer.make_decode(words)([*ids, words.eos_token_id]) == "a few words"


@pytest.mark.parametrize(
    "model",
    [
        Qwen3ForCausalLM(
            Qwen3Config(**BLOCKS, use_sliding_window=True, sliding_window=4, max_window_layers=1)
        ),
        MistralForCausalLM(MistralConfig(**BLOCKS, sliding_window=4)),
    ],
    ids=["some_layers", "all_layers"],
)
def test_sliding_windows_are_refused_with_rows_that_share(model):
    policy.prepare_model(model, compute(row_tokens=0), CPU)
    for changes in ({"row_tokens": 64}, {"row_tokens": 0, "pack_tokens": 64}):
        with pytest.raises(ValueError, match=r"sliding windows.*compute\.pack_tokens to 0"):
            policy.prepare_model(model, compute(**changes), CPU)


def test_mistral_without_a_window_is_not_refused():
    model = MistralForCausalLM(MistralConfig(**BLOCKS, sliding_window=None))
    policy.prepare_model(model, compute(pack_tokens=64), CPU)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_takes_boolean_masks_which_the_eager_one_would_add_to_the_scores(family):
    assert load(family).config._attn_implementation == attention.NAME


def test_a_saved_policy_stops_where_its_completions_ended(tmp_path):
    model, gemma = build("llama"), make_tokenizer("gemma")
    end = gemma.convert_tokens_to_ids("<end_of_turn>")
    for _ in range(2):
        policy.save_model(model, gemma, tmp_path)
        assert GenerationConfig.from_pretrained(tmp_path).eos_token_id == [EOS, end]
    sampler = engine.make_sampler(build("llama"), gemma, max_batch=1)
    assert sampler.eos_ids == {EOS, end, gemma.eos_token_id}


def test_attention_is_torchs_whatever_the_configuration_names(tmp_path):
    build("llama").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    content = json.loads(path.read_text()) | {"attn_implementation": "eager"}
    path.write_text(json.dumps(content))
    model = load_pretrained(AutoModelForCausalLM, tmp_path, new=frozenset())
    assert model.config._attn_implementation == policy.SDPA
