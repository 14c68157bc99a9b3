"""Supervised fine-tuning as a stage, from a policy and from random weights."""

import pytest
import stage_inputs
import torch
from safetensors.torch import load_file
from stage_inputs import MODEL, SEED
from tiny_checkpoints import COMPUTE
from tiny_rollouts import OPTIM, make_demonstrations

from stages import rows, train_sft
from stages.models import model_tokenizer
from stages.records import lines
from stages.rows import DATA

PRESET = {
    "num_epochs": None,
    "learning_rate": None,
    "num_demonstrations": None,
    "tasks": None,
    "learn_prompt": False,
}
POLICY = DATA / "policies/new"


def run(preset=None, start="sft", seeds=(SEED,), rank=0, num_epochs=3):
    stage_inputs.configure(
        PRESET | (preset or {}),
        seeds,
        compute=COMPUTE,
        model=MODEL,
        lora={"rank": rank, "alpha": 16},
        sft={"num_epochs": num_epochs, "batch_size": 4, "optim": OPTIM},
    )
    words = ("--train", "sft", "--preset", "mine", "--from", start, "--on", "demonstrations")
    train_sft.main("train_sft", "new", *words)
    return stage_inputs.metrics(POLICY / f"training/{seeds[-1]}")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, torch_settings):
    """Demonstrations, a policy and a base model."""
    monkeypatch.chdir(tmp_path)
    stage_inputs.write_policy()
    lines.write_lines(DATA / "demonstrations/demonstrations.jsonl", make_demonstrations(8))
    model_tokenizer.train_tokenizer(["3 + 4 = 7"], 700).save_pretrained(
        rows.locate_policy("base", 0)
    )


def test_the_section_or_the_preset_says_how_long_and_on_how_many():
    metrics = run()
    assert metrics["demonstrations"] == 8
    tokens = sum(len(row.completion_ids) for row in make_demonstrations(8))
    assert metrics["trained_tokens"] == 3 * tokens
    assert metrics["work"]["policy"]["trained"]["outputs"] == 3 * tokens
    assert run({"num_epochs": 1, "num_demonstrations": 4})["demonstrations"] == 4
    history = (POLICY / f"training/{SEED}/history.jsonl").read_text().splitlines()
    assert len(history) == 1


def test_no_epoch_leaves_the_policy_as_it_is():
    metrics = run(num_epochs=0)
    assert metrics["trained_tokens"] == 0
    assert "final_loss" not in metrics
    weights = load_file(POLICY / f"model/{SEED}/model.safetensors")
    before = load_file(rows.locate_policy("sft", SEED) / "model.safetensors")
    assert weights.keys() == before.keys()
    assert all(torch.equal(weights[name], before[name]) for name in weights)


def test_random_weights_differ_by_seed_and_a_run_repeats_them():
    run(start="base", seeds=(0, 1))
    result = [load_file(POLICY / f"model/{seed}/model.safetensors") for seed in (0, 1)]
    assert any(not torch.equal(result[0][name], result[1][name]) for name in result[0])
    run(start="base", seeds=(1,))
    again = load_file(POLICY / "model/1/model.safetensors")
    assert all(torch.equal(again[name], result[1][name]) for name in again)
    assert not (POLICY / "model/0").exists(), "a seed that is no longer asked for goes"


def test_adapters_on_random_weights_are_refused():
    with pytest.raises(ValueError, match=r"lora\.rank is above 0 and model\.path is null"):
        run(start="base", rank=2)
