"""Models on disk: what is saved is what transformers reads, and what is read is whole; adapters."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_tokenizers import make_tokenizer
from peft import LoraConfig as PeftConfig
from peft import get_peft_model
from ruamel.yaml import YAML
from safetensors.torch import load_file, save_file
from tiny_checkpoints import BLOCKS as TINY_BLOCKS
from tiny_checkpoints import CPU, EOS, FAMILIES, PAD, VOCAB, build, checkpoint, compute, load
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from stages import rows
from stages.algorithms.ensemble import mean, mean_minus_std, minimum
from stages.engines.vllm_policy import checkpoint_weights
from stages.models import model_tokenizer, policy, process_head, row_policy, scalar_head, size
from stages.models.batch import Group, micro_batches
from stages.models.policy import Policy, load_pretrained
from stages.models.process_head import ProcessHead
from stages.models.row_policy import BASE, LoraConfig, ModelConfig
from stages.models.scalar_head import ScalarHead

IDS, STEP = torch.tensor([[3, 4, 5, 6]]), 2
WORDS = model_tokenizer.train_tokenizer(["a few words"], 700)
GROUPS = [Group(prompt_ids=[3, 4], completions=[[5, 6, 7], [9, STEP]], indices=[0, 1]),
          Group(prompt_ids=[8], completions=[[4, STEP]], indices=[2])]  # fmt: skip
(BATCH,) = micro_batches(GROUPS, compute(), PAD, CPU)
pytestmark = pytest.mark.filterwarnings("ignore:fan_in_fan_out")


@dataclass(frozen=True)
class Kind:
    """A kind of model: made of a policy, read from its folder by us and by transformers."""

    make: Callable[[str], PreTrainedModel]
    read: Callable[[Path], PreTrainedModel]
    auto_class: type
    scores: Callable[[PreTrainedModel], torch.Tensor]
    head: str | None
    """Part that is trained whole beside adapters."""


KINDS = {
    "policy": Kind(
        load, lambda path: policy.load_policy(path, compute(), CPU), AutoModelForCausalLM,
        lambda model: Policy(model)(BATCH, temperature=1.0).logprobs, None,
    ),
    "scalar": Kind(
        lambda family: scalar_head.init_scalar_model(checkpoint(family), PAD, compute(), CPU,
                                                     head_seed=1),
        lambda path: scalar_head.load_scalar_model(path, compute(), CPU),
        AutoModelForSequenceClassification, lambda model: ScalarHead(model)(BATCH), "score",
    ),
    "process": Kind(
        lambda family: process_head.init_process_model(checkpoint(family), STEP, compute(), CPU),
        lambda path: process_head.load_process_model(path, compute(), CPU),
        AutoModelForTokenClassification,
        lambda model: ProcessHead(model)(BATCH, [[2], [1], [1]])[:, 1], "score|classifier",
    ),
}  # fmt: skip


def named(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def assert_equal(actual, expected) -> None:
    assert actual.keys() == expected.keys()
    assert not [name for name, weight in actual.items() if not torch.equal(weight, expected[name])]


def learn(kind: str, model: PreTrainedModel) -> None:
    """A few steps towards some tokens, or scores."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        KINDS[kind].scores(model).sum().neg().backward()
        optimizer.step()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_model_is_saved_as_an_ordinary_checkpoint(kind, rank, family, tmp_path):
    row = KINDS[kind]
    model = row.make(family)
    assert_equal(model.base_model.state_dict(), build(family).base_model.state_dict())
    assert model.dtype == torch.float32
    start, untouched = named(model), model(IDS)[0].detach()
    disable = row_policy.add_adapters(model, LoraConfig(rank=rank, alpha=8), seed=0)
    assert (disable is None) == (rank == 0)
    torch.testing.assert_close(model(IDS)[0], untouched, rtol=0, atol=0)  # they begin as nothing
    before = named(model)
    learn(kind, model)
    trained = [n for n, weight in named(model).items() if not torch.equal(weight, before[n])]
    if rank:  # nothing but adapters and a head
        of_head = [name for name in trained if ".lora_" not in name]
        assert bool(of_head) == (row.head is not None)
        assert all(re.search(f"({row.head}).modules_to_save", name) for name in of_head)
        adapted = model(IDS)[0].detach()
        assert not torch.allclose(adapted, untouched, atol=1e-3)
        if kind == "policy":
            with disable():
                assert torch.equal(model(IDS)[0], untouched)
            result = Policy(model, disable_adapters=disable)(BATCH, temperature=0.7, adapted=False)
            expected = Policy(load(family))(BATCH, temperature=0.7)
            assert torch.equal(result.logprobs, expected.logprobs)
        assert torch.equal(model(IDS)[0], adapted)
    before, scores = named(model), row.scores(model)
    policy.save_model(model, WORDS, tmp_path / "ours")
    assert_equal(named(model), before)
    assert not list((tmp_path / "ours").glob("*.bin"))
    again = row.read(tmp_path / "ours")
    assert named(again).keys() == start.keys()
    torch.testing.assert_close(row.scores(again), scores, rtol=2e-4, atol=2e-4)
    theirs = row.auto_class.from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(theirs(IDS)[0], model.eval()(IDS)[0], rtol=2e-4, atol=2e-4)
    if rank == 0:
        assert torch.equal(theirs(IDS)[0], model(IDS)[0])
        model.save_pretrained(tmp_path / "theirs")
        for path in (tmp_path / "theirs").iterdir():
            assert (tmp_path / "ours" / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_model_is_saved_in_the_precision_that_its_configuration_names(tmp_path):
    model = load("llama")
    policy.save_model(model, WORDS, tmp_path, "bfloat16")
    merged = {name: weight.bfloat16() for name, weight in policy.merged_weights(model)}
    assert_equal(load_file(tmp_path / "model.safetensors"), merged)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    assert model.dtype == torch.float32


def test_experts_are_named_as_in_a_saved_checkpoint(tmp_path):
    """transformers holds a layer's experts in one matrix, a file and vLLM do not."""
    numbers = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    config = AutoConfig.for_model("qwen3_moe", **TINY_BLOCKS, head_dim=8, **numbers)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    result = dict(checkpoint_weights(policy.load_policy(tmp_path, compute(row_tokens=0), CPU)))
    assert "model.layers.0.mlp.experts.0.gate_proj.weight" in result
    assert_equal(result, load_file(tmp_path / "model.safetensors"))


def edit_json(folder: Path, name: str = "config.json", **changes: object) -> None:
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(content | changes))


def edit(
    folder: Path, *, lost: str = "", new: str = "", config: Any = (), sampling: Any = (),
    is_pickled: bool = False, has_adapters: bool = False,
) -> None:  # fmt: skip
    """Save a Llama in the folder and change it; `new`: a weight of 16 numbers."""
    model = build("llama")
    model.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights |= {new: torch.ones(16)} if new else {}
    weights.pop(lost, None)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    edit_json(folder, **dict(config))
    edit_json(folder, "generation_config.json", **dict(sampling))
    if is_pickled:
        torch.save(weights, folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    if has_adapters:
        get_peft_model(model, PeftConfig(r=2, target_modules="all-linear")).save_pretrained(folder)


EDITS = YAML(typ="safe").load(Path(__file__).with_name("checkpoints.yaml"))


@pytest.mark.parametrize("name", EDITS)
def test_a_checkpoint_that_is_not_whole_is_refused_where_it_is_loaded(name, tmp_path):
    refused, *changes = EDITS[name]
    edit(tmp_path, **dict(*changes))
    if refused is None:
        model = policy.load_policy(tmp_path, compute(), CPU)
        assert model.config._attn_implementation == "sdpa_by_mask"
        return
    with pytest.raises(ValueError, match=refused):
        policy.load_policy(tmp_path, compute(), CPU)
    if name == "sampling":
        policy.load_policy(tmp_path, compute(), CPU, trained=False)


def test_a_new_head_is_new_only_where_it_may_be(tmp_path):
    class_, head = AutoModelForSequenceClassification, frozenset({"score.weight"})
    with pytest.raises(ValueError, match=r"score\.weight"):
        load_pretrained(class_, checkpoint("llama"), new=frozenset(), num_labels=1)
    edit(tmp_path, new="model.layers.2.mlp.up_proj.weight")
    with pytest.raises(ValueError, match="no place"):  # in the body
        load_pretrained(class_, tmp_path, new=head, num_labels=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("id2label", {0: "right", 1: "wrong"}), ("step_token_id", None), ("step_separator", "")],
)
def test_a_classifier_that_is_no_process_model_is_refused(name, value, tmp_path):
    model = KINDS["process"].make("llama")
    setattr(model.config, name, value)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="labels" if name == "id2label" else name):
        process_head.load_process_model(tmp_path, compute(), CPU)


def test_a_saved_policy_stops_where_its_completions_ended(tmp_path):
    model, gemma = build("llama"), make_tokenizer("gemma")
    end = gemma.convert_tokens_to_ids("<end_of_turn>")
    for _ in range(2):
        policy.save_model(model, gemma, tmp_path)
        assert GenerationConfig.from_pretrained(tmp_path).eos_token_id == [EOS, end]


@pytest.mark.parametrize("begin", [{"bos_token": "<2>"}, {}], ids=str)
def test_other_tools_read_the_same_score_though_padding_was_the_end(begin, tmp_path):
    inner = Tokenizer(models.WordLevel({f"<{i}>": i for i in range(VOCAB)}))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<1>", pad_token="<1>", **begin
    )
    pad = model_tokenizer.set_separate_pad(tokenizer)
    assert pad == (2 if begin else VOCAB)
    model = scalar_head.init_scalar_model(checkpoint("gpt2"), pad, compute(), CPU, head_seed=1)
    completions = [[5, 6, 7, 8, 9, EOS], [5, 6, 7, 4, 5, 6, 7], [9, EOS]]
    (batch,) = micro_batches(
        [Group(prompt_ids=ids[:1], completions=[ids[1:]], indices=[number])
         for number, ids in enumerate(completions)], compute(), pad, CPU,
    )  # fmt: skip
    expected = dict(zip(batch.indices, ScalarHead(model.eval())(batch), strict=True))
    policy.save_model(model, tokenizer, tmp_path)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    texts = [" ".join(f"<{i}>" for i in ids) for ids in completions]
    inputs = AutoTokenizer.from_pretrained(tmp_path)(texts, padding=True, return_tensors="pt")
    assert inputs["input_ids"].shape == (3, 7)
    for number, score in enumerate(theirs(**inputs).logits.squeeze(-1)):
        torch.testing.assert_close(score, expected[number], rtol=1e-4, atol=1e-5)


def test_adapters_are_drawn_from_their_seed_and_merged_with_alpha_over_rank():
    draws = []
    for seed in (0, 0, 1):
        model = load("llama")
        row_policy.add_adapters(model, LoraConfig(rank=2, alpha=6), seed)
        draws.append(torch.cat([w.flatten() for n, w in named(model).items() if "lora_A" in n]))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(generator=torch.Generator().manual_seed(0))
    parts, layer = named(model), "model.layers.1.mlp.down_proj"
    with torch.autocast("cpu", torch.bfloat16):  # merging is in float32 all the same
        merged = dict(policy.merged_weights(model))
    a, b = (parts[f"{layer}.lora_{letter}.default.weight"] for letter in "AB")
    expected = load("llama").state_dict()[f"{layer}.weight"] + 6 / 2 * b @ a
    torch.testing.assert_close(merged[f"{layer}.weight"], expected)


def test_an_ensemble_aggregates_its_members_in_the_order_of_their_numbers(tmp_path):
    members = []
    for seed, number in enumerate((2, 10, 0)):
        model = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU,
                                              head_seed=seed)  # fmt: skip
        model.save_pretrained(tmp_path / str(number))
        members.append(ScalarHead(model.eval()))
    folders = scalar_head.find_member_folders(tmp_path)
    assert [folder.name for folder in folders] == ["0", "2", "10"]
    alone = torch.stack([member(BATCH) for member in members])
    assert (alone.std(0) > 0.1).all()
    # Numbers that neither begin at 0 nor come in the order of micro-batches.
    moved = [replace(group, indices=[9 - i for i in group.indices]) for group in GROUPS]
    by_index = torch.tensor(BATCH.indices).argsort()
    for aggregate in (mean, minimum, partial(mean_minus_std, k=1.0)):
        ensemble = scalar_head.load_ensemble(tmp_path, aggregate, compute(max_tokens=7), CPU)
        ensemble.members[0].train()
        expected, spread = aggregate(scores=alone), alone.std(0, correction=0)
        for scores, order in (
            (ensemble(BATCH), slice(None)),
            (ensemble.score_groups(GROUPS), by_index),
            (ensemble.score_groups(moved), by_index.flip(0)),
        ):
            torch.testing.assert_close(scores.values, expected[order])
            torch.testing.assert_close(scores.disagreement, spread[order])
            assert not scores.values.requires_grad
    single = scalar_head.load_ensemble(tmp_path / "10", minimum, compute(), CPU)(BATCH)
    assert torch.equal(single.values, alone[1])
    assert single.disagreement.tolist() == [0.0] * 3
    total = size.measure_scorer(tmp_path)
    assert total["parameters"] == 3 * size.measure_scorer(tmp_path / "0")["parameters"]


FOLDERS = {
    "missing": [], "empty": [], "notes": ["notes/config.json"],
    "latest": ["0/config.json", "latest/config.json"],
    "1.5": ["0/config.json", "1.5/config.json"], "1": ["0/config.json", "1/weights"],
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_neither_a_model_nor_members_is_refused(name, tmp_path):
    for path in FOLDERS[name]:
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).touch()
    folder = tmp_path / "missing" if name == "missing" else tmp_path
    with pytest.raises(ValueError, match=f"'{name}'" if FOLDERS[name] else "nothing"):
        scalar_head.find_member_folders(folder)


TINY = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
        "max_length": 32, "vocab_size": 700}  # fmt: skip


def config(**changes: object) -> ModelConfig:
    return ModelConfig(**{"path": None, "revision": None, "thinking": None, "tiny": TINY} | changes)


RANDOM = config()


def test_a_row_starts_from_its_policy_the_named_model_or_a_random_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    WORDS.save_pretrained(rows.locate_policy(BASE, 0))
    trained, named_model = Path("data/policies/sft/model/1"), checkpoint("qwen3")
    for name, seed, path, folder in (("sft", 1, None, trained),
                                     (BASE, 0, str(named_model), named_model)):  # fmt: skip
        assert row_policy.locate_policy_folder(name, seed, config(path=path)) == folder
    first, again, other = (
        row_policy.load_row_policy(BASE, 0, RANDOM, compute(), CPU, weights_seed=seed).lm_head
        for seed in (1, 1, 2)
    )
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)
    for refused in (
        lambda: row_policy.load_row_policy(BASE, 0, RANDOM, compute(), CPU),
        lambda: row_policy.locate_policy_folder(BASE, 0, RANDOM),
        lambda: size.measure_policy(BASE, 0, RANDOM),
    ):
        with pytest.raises(ValueError, match=r"model\.path"):
            refused()
    with pytest.raises(ValueError, match="revision"):  # a hub id without its commit
        config(path="Qwen/Q")
    with pytest.raises(ValueError, match="Qwen/Q"):  # its files are not here
        row_policy.locate_policy_folder(BASE, 0, config(path="Qwen/Q", revision="c1"))


def test_rows_fit_the_positions_of_the_model_and_its_embeddings():
    named_model = config(path=str(checkpoint("llama")))
    named_model.check_length(33)
    RANDOM.check_length(32)
    with pytest.raises(ValueError, match="33"):
        RANDOM.check_length(33)
    few = make_tokenizer("plain")
    few.pad_token = few.eos_token = few.convert_ids_to_tokens(3)
    positions = 128  # of every checkpoint of `tiny_checkpoints`
    named_model.check_rows([[VOCAB - 1]], positions, few, "max_tokens")
    RANDOM.check_rows([[VOCAB]], 32, few, "max_tokens")
    for ids, words, token in (([[4], [VOCAB, 2]], few, VOCAB), ([], make_tokenizer("plain"), "")):
        with pytest.raises(ValueError, match=f"below {VOCAB}.*{token}"):
            named_model.check_rows(ids, 2, words, "max_tokens")
    for model, most in ((named_model, positions), (RANDOM, 32)):
        with pytest.raises(ValueError, match=f"at most {most} .*one of {most + 1} .*max_tokens"):
            model.check_rows([[4]], most + 1, few, "max_tokens")


# Two blocks of q 16x16, k and v 16x8, o 16x16, gate, up and down 16x32; an output of 32x16.
BLOCKS = 2 * (16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 32)
OUTPUT, NORMS = 32 * 16, 2 * 2 * 16 + 16


def test_sizes_by_hand():
    """A tied matrix is memory once, and work once; adapters are matrices, the rest is frozen."""
    model = load("llama")
    result = size.measure_model(model)
    assert result["body"] == result["trained_body"] == BLOCKS
    assert result["output"] == result["trained_output"] == OUTPUT
    assert result["parameters"] == result["trained_parameters"] == BLOCKS + OUTPUT + NORMS
    row_policy.add_adapters(model, LoraConfig(rank=2, alpha=4), 0)
    new = 2 * 2 * ((16 + 16) + 2 * (16 + 8) + (16 + 16) + 3 * (16 + 32))
    adapted = size.measure_model(model)
    assert (adapted["body"], adapted["trained_body"]) == (BLOCKS + new, new)
    assert (adapted["output"], adapted["trained_output"]) == (OUTPUT, 0)
    assert adapted["trained_parameters"] == new
    frozen = dict.fromkeys(["trained_parameters", "trained_body", "trained_output"], 0)
    assert size.measure_frozen(model) == result | frozen
    scalar = size.measure_model(KINDS["scalar"].make("llama"))
    assert (scalar["body"], scalar["output"]) == (BLOCKS, 0)
    assert scalar["parameters"] == BLOCKS + OUTPUT + NORMS + 16


@pytest.mark.parametrize("thinking", [None, False, True])
def test_facts_of_a_model_for_auto(thinking, tmp_path):
    load("llama").save_pretrained(tmp_path)
    WORDS.save_pretrained(tmp_path)
    path = {"path": str(tmp_path), "revision": None, "thinking": thinking}
    facts = size.model_facts(path)
    assert (facts.parameters, facts.positions) == (BLOCKS + OUTPUT + NORMS, 128)
    assert facts.thinks == (thinking is True)
    assert (facts.has_chat_template, facts.shares_rows) == (False, True)
    edit_json(tmp_path, max_position_embeddings=None)
    with pytest.raises(ValueError, match="max_position_embeddings"):
        size.model_facts(path)
    assert size.model_facts({"path": None}) is None
