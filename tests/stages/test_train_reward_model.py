"""The entry point on a random checkpoint and made-up pairs: what it says of the model."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE, load
from tiny_rollouts import OPTIM, make_pairs
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from stages import train_reward_model
from stages.records import lines

START, PAIRS, HELDOUT = "train_sft/sft/policy", "label_preferences/sft", "judge_preferences/other"
PARAMS = {
    "seed": 0,
    "compute": COMPUTE,
    "lora": {"rank": 0, "alpha": 16},
    "reward_quality": {
        "num_bins": 4,
        "binning": "equal_mass",
        "length_tolerance": 2,
        "length_edges": [-3, 0],
        "num_bootstrap": 200,
        "confidence": 0.95,
    },
    "train_reward_model": {
        "num_epochs": 8,
        "batch_size": 8,
        "centring": 0.01,
        "margin": 0.0,
        "optim": OPTIM,
    },
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    monkeypatch.chdir(tmp_path)
    load("llama").save_pretrained(train_reward_model.DATA / START)
    vocab = {"<pad>": 0, "</s>": 1, **{f"w{i}": i for i in range(2, 32)}}
    words = Tokenizer(WordLevel(vocab, unk_token="<pad>"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>"
    ).save_pretrained(train_reward_model.DATA / START)
    pairs = make_pairs(48)
    lines.write(train_reward_model.DATA / PAIRS / "train.jsonl", pairs[:32])
    heldout = [dataclasses.replace(pair, probability=0.9) for pair in pairs[32:]]
    lines.write(train_reward_model.DATA / HELDOUT / "heldout.jsonl", heldout)
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(PARAMS, file)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def run(flip):
    name = f"flip-{flip}"
    train_reward_model.main(name, START, PAIRS, HELDOUT, "0", flip)
    output = train_reward_model.OUTPUT / name
    return output, json.loads((output / "metrics.json").read_text(encoding="utf-8"))


def test_the_quality_is_of_the_heldout_pairs_and_is_drawn():
    output, metrics = run("0")
    quality = metrics["heldout"]
    assert (metrics["pairs"], quality["pairs"], quality["problems"]) == (32, 16, 16)
    assert quality["accuracy"]["low"] > 0.5
    assert quality["label_entropy"]["value"] == pytest.approx(0.325083, abs=1e-6)
    assert quality["negative_log_likelihood"]["value"] >= quality["label_entropy"]["value"]
    # Chosen completions of the game are one token longer.
    by_length = quality["accuracy_by_length_difference"]
    assert by_length["<= -4"] is by_length["-3 .. -1"] is None
    assert by_length[">= 0"] == quality["accuracy"] | {"pairs": 16}
    assert quality["length_matched_accuracy"] == by_length[">= 0"]
    assert {path.name for path in (output / "plots").iterdir()} == {
        "accuracy_by_length.csv", "accuracy_by_length.png", "reliability.csv", "reliability.png",
    }  # fmt: skip


def test_flipped_training_labels_are_measured_against_heldout_labels_that_are_not():
    accuracy = {flip: run(flip)[1]["heldout"]["accuracy"]["value"] for flip in ("0", "50")}
    assert accuracy["50"] < accuracy["0"]
