import shutil
from pathlib import Path

import pytest
import torch
from collated import collate
from tiny_checkpoints import CPU, FAMILIES, PAD, checkpoint, compute, load

from stages import rows
from stages.models import model_tokenizer, policy, row_policy, scalar_head
from stages.models.batch import Group
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig, ModelConfig, TinyConfig, build_tiny
from stages.models.scalar_head import ScalarHead

TINY = {
    "hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
    "max_length": 32, "vocab_size": 700,
}  # fmt: skip
RANDOM = ModelConfig(path=None, revision=None, thinking=None, tiny=TINY)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_tokenizer.train_tokenizer(["1 + 1 = 2"], 700).save_pretrained(
        rows.locate_policy(row_policy.BASE, 0)
    )


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_policy_is_read_from_its_folder():
    shutil.copytree(checkpoint("llama"), "data/policies/sft/model/1")
    result = row_policy.load_row_policy("sft", 1, RANDOM, compute(), CPU)
    assert torch.equal(
        weights(result), weights(policy.load_policy(checkpoint("llama"), compute(), CPU))
    )
    assert row_policy.locate_policy_folder("sft", 1, RANDOM) == Path("data/policies/sft/model/1")


def test_the_base_model_is_the_checkpoint_that_params_name():
    config = RANDOM.model_copy(update={"path": str(checkpoint("qwen3"))})
    result = row_policy.load_row_policy(row_policy.BASE, 0, config, compute(), CPU)
    assert torch.equal(
        weights(result), weights(policy.load_policy(checkpoint("qwen3"), compute(), CPU))
    )
    assert row_policy.locate_policy_folder(row_policy.BASE, 0, config) == checkpoint("qwen3")


def test_without_a_path_it_is_random_from_the_seed_where_a_random_model_will_do():
    first, again, other = (
        weights(
            row_policy.load_row_policy(
                row_policy.BASE, 0, RANDOM, compute(), CPU, weights_seed=seed
            )
        )
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_elsewhere_a_random_model_is_refused():
    with pytest.raises(ValueError, match="a random model earns no reward"):
        row_policy.load_row_policy(row_policy.BASE, 0, RANDOM, compute(), CPU)
    with pytest.raises(ValueError, match="a random model earns no reward"):
        row_policy.locate_policy_folder(row_policy.BASE, 0, RANDOM)


def test_an_engine_that_reads_files_needs_a_folder():
    config = RANDOM.model_copy(update={"path": "Qwen/Qwen3-0.6B", "revision": "c1"})
    with pytest.raises(ValueError, match=r"found the hub id model\.path 'Qwen/Qwen3-0.6B'"):
        row_policy.locate_policy_folder(row_policy.BASE, 0, config)


SHAPE = {
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 4,
    "intermediate_size": 32,
    "max_length": 64,
    "vocab_size": 700,
}


@pytest.fixture
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
    with pytest.raises(ValueError, match="a hidden_size that num_heads divides, found 16 and 3"):
        build_tiny(TinyConfig(**SHAPE | {"num_heads": 3}), words, 0)


IDS = torch.tensor([[3, 4, 5, 6]])
OFF, RANK_4 = LoraConfig(rank=0, alpha=8), LoraConfig(rank=4, alpha=8)


def named(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def learn(model):
    """A few steps towards some tokens, or some reward."""
    batch = collate(
        [Group(prompt_ids=[3, 4], completions=[[5, 6], [7]], indices=[0, 1])], 64, PAD, CPU
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(3):
        if hasattr(model, "score"):
            loss = -ScalarHead(model)(batch).sum()
        else:
            loss = -Policy(model)(batch, temperature=1.0)[0].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_rank_0_leaves_the_model_as_it_is():
    model = load("llama")
    before = named(model)
    assert row_policy.add_adapters(model, OFF, 0) is None
    assert named(model).keys() == before.keys()
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_only_adapters_are_trained_and_without_them_the_model_is_as_it_was(family):
    model = load(family)
    untouched = model(IDS).logits
    without = row_policy.add_adapters(model, RANK_4, 0)
    assert torch.equal(model(IDS).logits, untouched), "adapters start as nothing"
    before = named(model)
    learn(model)
    for name, weight in named(model).items():
        assert torch.equal(weight, before[name]) != (".lora_" in name), name
    adapted = model(IDS).logits
    assert not torch.allclose(adapted, untouched, atol=1e-3)
    with without():
        assert torch.equal(model(IDS).logits, untouched)
    assert torch.equal(model(IDS).logits, adapted)


def test_a_policy_without_its_adapters_is_the_frozen_start():
    """To the bit."""
    model, frozen = load("llama"), Policy(load("llama"))
    group = Group(prompt_ids=[3, 4], completions=[[5, 6], [7]], indices=[0, 1])
    batch = collate([group], 64, PAD, CPU)
    without = row_policy.add_adapters(model, RANK_4, 0)
    learn(model)
    read = [
        reference(batch, temperature=0.7, adapted=False).logprobs
        for reference in (frozen, Policy(model, disable_adapters=without))
    ]
    assert torch.equal(*read)
    assert read[0].any()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_it_is_saved_merged_as_an_ordinary_checkpoint_and_stays_as_it_is(family, tmp_path):
    model, words = load(family), model_tokenizer.train_tokenizer(["a few words"], 700)
    row_policy.add_adapters(model, RANK_4, 0)
    learn(model)
    before, adapted = named(model), model.eval()(IDS).logits
    policy.save_model(model, words, tmp_path)
    again = policy.load_policy(tmp_path, compute(), CPU).eval()
    torch.testing.assert_close(again(IDS).logits, adapted, rtol=1e-4, atol=1e-4)
    assert named(again).keys() == named(load(family)).keys()
    after = named(model)
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert after.keys() == before.keys()
    assert torch.equal(model(IDS).logits, adapted)


def test_merging_is_in_float32_whatever_the_stage_computes_in():
    model = load("llama")
    row_policy.add_adapters(model, RANK_4, 0)
    learn(model)
    expected = dict(policy.merged_weights(model))
    with torch.autocast("cpu", torch.bfloat16):
        actual = dict(policy.merged_weights(model))
    assert all(torch.equal(actual[name], weight) for name, weight in expected.items())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_a_scalar_head_is_trained_whole_and_saved(family, tmp_path):
    model = scalar_head.init_scalar_model(checkpoint(family), PAD, compute(), CPU)
    row_policy.add_adapters(model, RANK_4, 0)
    learn(model)
    batch = collate([Group(prompt_ids=[3], completions=[[5, 6]], indices=[0])], 64, PAD, CPU)
    adapted = ScalarHead(model)(batch)
    policy.save_model(model, model_tokenizer.train_tokenizer(["a few words"], 700), tmp_path)
    final = scalar_head.load_scalar_model(tmp_path, compute(), CPU)
    assert final.score.weight.any()
    torch.testing.assert_close(ScalarHead(final)(batch), adapted, rtol=1e-4, atol=1e-4)


def test_adapters_are_drawn_from_the_seed():
    drawn = []
    for seed in (0, 0, 1):
        model = load("llama")
        row_policy.add_adapters(model, RANK_4, seed)
        drawn.append(torch.cat([w.flatten() for n, w in named(model).items() if "lora_A" in n]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_with_gradient_checkpointing_the_adapters_still_get_their_gradients():
    result = []
    for checkpointing in (False, True):
        model = load("llama", gradient_checkpointing=checkpointing).train()
        row_policy.add_adapters(model, RANK_4, 0)
        learn(model)
        result.append(torch.cat([w.flatten() for n, w in named(model).items() if "lora_B" in n]))
    assert result[0].any()
    torch.testing.assert_close(result[0], result[1])
