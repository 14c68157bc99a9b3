"""Preference learning as a stage, on a random checkpoint and made-up pairs."""

import dataclasses
import json
import logging

import pytest
import stage_inputs
from stage_inputs import MODEL, SEED
from tiny_checkpoints import COMPUTE
from tiny_rollouts import OPTIM, make_pairs

from stages import train_dpo
from stages.records import lines
from stages.rows import DATA

SIGMOID = {"kind": "sigmoid", "beta": 0.1, "label_smoothing": 0.0}
KTO = {"kind": "kto", "beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0}
WORDS = ("new", "--train", "dpo", "--preset", "mine", "--from", "sft", "--on", "pairs/old")
PAIRS = DATA / f"pairs/old/{SEED}/train.jsonl"
POLICY = DATA / "policies/new"
OWN = POLICY / f"training/{SEED}"
SIZES = {
    "num_checkpoints": 1,
    "num_epochs": 4,
    "batch_size": 3,
    "optim": OPTIM | {"learning_rate": 3e-3},
}


def run(loss, seeds=(SEED,), lora=None, **sizes):
    stage_inputs.configure(
        loss,
        seeds,
        compute=COMPUTE,
        model=MODEL,
        lora=lora or {"rank": 0, "alpha": 16},
        dpo=SIZES | sizes,
    )
    train_dpo.main("train_dpo", *WORDS)
    return stage_inputs.metrics(OWN)


def steps():
    text = (OWN / "history.jsonl").read_text(encoding="utf-8")
    return [json.loads(line)["metrics"] for line in text.splitlines()]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, torch_settings):
    """A pipeline up to the pairs."""
    monkeypatch.chdir(tmp_path)
    stage_inputs.write_policy()
    lines.write_lines(PAIRS, make_pairs(5))


@pytest.mark.parametrize(
    ("loss", "rows"), [(SIGMOID, 5), ({"kind": "orpo", "lam": 0.5}, 5), (KTO, 10)]
)
def test_a_policy_is_written_and_the_steps_are_those_of_the_loop(loss, rows):
    metrics = run(loss)
    assert (POLICY / f"model/{SEED}/model.safetensors").exists()
    history = steps()
    (checkpoint,) = (OWN / "checkpoints").iterdir()
    assert checkpoint.name == f"step-{len(history) // 2:04d}"
    assert (checkpoint / "model.safetensors").exists()
    assert metrics["steps"] == len(history)
    # Batches of 3, the smaller last one of each of four epochs kept.
    assert len(history) == 4 * -(-rows // 3)
    assert metrics["completions" if loss is KTO else "pairs"] == rows
    assert metrics["trained_tokens"] == sum(step["tokens/trained"] for step in history)
    assert metrics["final_chosen_log_ratio"] > metrics["final_rejected_log_ratio"]
    assert ("kl/reference_point" in history[0]) == (loss is KTO)


@pytest.mark.parametrize("loss", [SIGMOID, KTO], ids=["sigmoid", "kto"])
def test_training_starts_from_the_reference_with_adapters_or_without(loss):
    for rank in (0, 2):
        metrics = run(loss, lora={"rank": rank, "alpha": 4}, batch_size=10)
        assert steps()[0]["log_ratios/chosen"] == pytest.approx(0.0, abs=1e-4)
        # Each completion is read once more, before the first step.
        assert metrics["work"]["policy"]["read"]["outputs"] >= metrics["trained_tokens"] / 4


def test_the_smoothing_of_a_label_changes_nothing_else_but_the_loss():
    run(SIGMOID)
    plain = steps()[0]
    run(SIGMOID | {"label_smoothing": 0.1})
    # At margin 0 both cost log 2; the gradient shrinks by 1 - 2 e.
    assert steps()[0]["loss/preference"] == pytest.approx(plain["loss/preference"], abs=1e-5)
    assert steps()[0]["optim/grad_norm"] == pytest.approx(0.8 * plain["optim/grad_norm"], rel=1e-3)


def test_the_fall_of_both_likelihoods_is_told_once(caplog):
    with caplog.at_level(logging.WARNING):
        assert run(SIGMOID)["both_logprobs_fell"] is False
    assert not caplog.records
    # Completions that differ at their end alone, learned too fast.
    similar = [
        dataclasses.replace(pair, rejected_ids=[*pair.chosen_ids[:-1], 2 + i, 1])
        for i, pair in enumerate(make_pairs(5))
    ]
    lines.write_lines(PAIRS, similar)
    with caplog.at_level(logging.WARNING):
        metrics = run(SIGMOID, num_epochs=20, optim=OPTIM | {"learning_rate": 3e-2})
    assert metrics["both_logprobs_fell"] is True
    (record,) = caplog.records
    assert record.name == "stages.loops.preference"
    assert f"log-ratios {metrics['final_chosen_log_ratio']:.2f} and" in record.getMessage()


@pytest.mark.parametrize(("loss", "budget"), [(SIGMOID, 1), (SIGMOID, 300), (KTO, 200)])
def test_a_budget_of_tokens_takes_the_place_of_epochs(loss, budget):
    optim = SIZES["optim"] | {"schedule": "linear"}
    whole = run(loss, optim=optim, num_epochs=40)
    spent = [metrics["tokens/trained"] for metrics in steps()]
    metrics = run(loss | {"token_budget": budget}, optim=optim)
    history = steps()
    assert metrics["trained_tokens"] == sum(step["tokens/trained"] for step in history)
    assert metrics["trained_tokens"] - history[-1]["tokens/trained"] < budget
    assert budget <= metrics["trained_tokens"] < whole["trained_tokens"]
    assert [step["tokens/trained"] for step in history] == spent[: len(history)]
    # the rate falls to 0 over these steps, not over those of the epochs
    assert history[-1]["optim/learning_rate"] == pytest.approx(3e-3 / len(history))


def test_each_seed_starts_from_its_own_policy_and_learns_from_its_own_pairs():
    alone = run(SIGMOID)
    history = steps()
    stage_inputs.write_policy(seed=4)
    lines.write_lines(DATA / "pairs/old/4/train.jsonl", make_pairs(3))
    assert run(SIGMOID, seeds=(SEED, 4)) == alone
    assert steps() == history, "what it learns does not depend on the other seeds"
    assert stage_inputs.metrics(POLICY / "training/4")["pairs"] == 3
    assert (POLICY / "model/4/model.safetensors").exists()
