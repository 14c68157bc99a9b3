"""The two entry points of preference learning, on a random checkpoint and made-up pairs."""

import dataclasses
import json
import logging
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE, load
from tiny_rollouts import OPTIM, make_pairs
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from stages import compute_ref_logprobs, train_dpo
from stages.records import lines
from stages.records.ref_logprob import RefLogprob

SIGMOID = {"kind": "sigmoid", "beta": 0.1, "label_smoothing": 0.0}
KTO = {"kind": "kto", "beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0}
ENTRY = ("dpo", "tried", "train_sft/sft/policy", "label_preferences/sft", "sft")
"""Name, preset, start, pairs, reference."""
START = train_dpo.DATA / ENTRY[2]
PAIRS = train_dpo.DATA / ENTRY[3] / "train.jsonl"
REFERENCE = train_dpo.REFERENCE / "sft/ref_logprobs.jsonl"
OUTPUT = train_dpo.OUTPUT / "dpo"
PARAMS = {
    "seed": 0,
    "compute": COMPUTE,
    "lora": {"rank": 0, "alpha": 16},
    "train_dpo": {
        "num_checkpoints": 1,
        "token_budgets": {},
        "num_epochs": 4,
        "batch_size": 3,
        "optim": OPTIM | {"learning_rate": 3e-3},
    },
}


def run(loss, **changes):
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(PARAMS | {"preference": {"tried": loss}} | changes, file)
    train_dpo.main(*ENTRY)
    return json.loads((OUTPUT / "metrics.json").read_text(encoding="utf-8"))


def journal():
    text = (OUTPUT / "run/journal.jsonl").read_text(encoding="utf-8")
    return [json.loads(line)["metrics"] for line in text.splitlines()]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A pipeline up to the reference's log-probs; torch is left as it was."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    monkeypatch.chdir(tmp_path)
    load("llama").save_pretrained(START)
    vocab = {"<pad>": 0, "</s>": 1, **{f"w{i}": i for i in range(2, 32)}}
    words = Tokenizer(WordLevel(vocab, unk_token="<pad>"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>"
    ).save_pretrained(START)
    lines.write(PAIRS, make_pairs(5))
    Path("params.yaml").write_text(json.dumps({"compute": COMPUTE}), encoding="utf-8")
    compute_ref_logprobs.main("sft", *ENTRY[2:4])
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def test_the_reference_has_a_row_for_each_completion():
    stored = list(lines.read(REFERENCE, RefLogprob))
    metrics = json.loads((compute_ref_logprobs.OUTPUT / "sft/metrics.json").read_text())
    assert len(stored) == metrics["completions"] == 10
    mean = sum(row.logprob_sum for row in stored) / 10
    assert metrics["mean_logprob_sum"] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("loss", "rows"), [(SIGMOID, 5), ({"kind": "orpo", "lam": 0.5}, 5), (KTO, 10)]
)
def test_a_policy_is_written_and_the_steps_are_those_of_the_loop(loss, rows):
    metrics = run(loss)
    assert (OUTPUT / "policy/model.safetensors").exists()
    steps = journal()
    (checkpoint,) = (OUTPUT / "checkpoints").iterdir()
    assert checkpoint.name == f"step-{len(steps) // 2:04d}"
    assert (checkpoint / "model.safetensors").exists()
    assert metrics["steps"] == len(steps)
    # Batches of 3, the smaller last one of each of four epochs kept.
    assert len(steps) == 4 * -(-rows // 3)
    assert metrics["pairs"] == 5
    assert metrics["trained_tokens"] == sum(step["tokens/trained"] for step in steps)
    assert metrics["final_chosen_log_ratio"] > metrics["final_rejected_log_ratio"]
    assert ("kl/reference_point" in steps[0]) == (loss is KTO)


@pytest.mark.parametrize("loss", [SIGMOID, KTO], ids=["sigmoid", "kto"])
def test_adapters_start_from_the_same_reference(loss):
    run(loss, lora={"rank": 2, "alpha": 4})
    assert journal()[0]["log_ratios/chosen"] == pytest.approx(0.0, abs=1e-4)


def test_the_smoothing_of_a_label_changes_nothing_else_but_the_loss():
    run(SIGMOID)
    plain = journal()[0]
    run(SIGMOID | {"label_smoothing": 0.1})
    # At margin 0 both cost log 2; the gradient shrinks by 1 - 2 e.
    assert journal()[0]["loss/preference"] == pytest.approx(plain["loss/preference"], abs=1e-5)
    assert journal()[0]["optim/grad_norm"] == pytest.approx(
        0.8 * plain["optim/grad_norm"], rel=1e-3
    )


def test_the_fall_of_both_likelihoods_is_told_once(caplog):
    with caplog.at_level(logging.WARNING):
        assert run(SIGMOID)["both_logprobs_fell"] is False
    assert not caplog.records
    # From a reference that finds everything likelier than the policy does, both have fallen.
    likelier = [
        dataclasses.replace(row, logprob_sum=0.0) for row in lines.read(REFERENCE, RefLogprob)
    ]
    lines.write(REFERENCE, likelier)
    with caplog.at_level(logging.WARNING):
        metrics = run(SIGMOID)
    assert metrics["both_logprobs_fell"] is True
    (record,) = caplog.records
    assert record.name == "stages.train_dpo"
    assert f"log-ratios {metrics['final_chosen_log_ratio']:.2f} and" in record.getMessage()


def test_pairs_that_the_reference_has_not_seen_are_refused():
    pairs = [dataclasses.replace(pair, id=f"new-{pair.id}") for pair in make_pairs(5)]
    lines.write(PAIRS, pairs)
    for loss in (SIGMOID, KTO):
        with pytest.raises(ValueError, match="dvc repro compute_ref_logprobs"):
            run(loss)


@pytest.mark.parametrize(("loss", "budget"), [(SIGMOID, 1), (SIGMOID, 300), (KTO, 200)])
def test_a_budget_of_tokens_takes_the_place_of_epochs(loss, budget):
    section = PARAMS["train_dpo"] | {"optim": PARAMS["train_dpo"]["optim"] | {"schedule": "linear"}}
    whole = run(loss, train_dpo=section | {"num_epochs": 40})
    spent = [metrics["tokens/trained"] for metrics in journal()]
    metrics = run(loss, train_dpo=section | {"token_budgets": {"dpo": budget}})
    steps = journal()
    assert metrics["trained_tokens"] == sum(step["tokens/trained"] for step in steps)
    assert metrics["trained_tokens"] - steps[-1]["tokens/trained"] < budget
    assert budget <= metrics["trained_tokens"] < whole["trained_tokens"]
    assert [step["tokens/trained"] for step in steps] == spent[: len(steps)]
    # the rate falls to 0 over these steps, not over those of the epochs
    assert steps[-1]["optim/learning_rate"] == pytest.approx(3e-3 / len(steps))


def test_a_budget_of_another_entry_changes_nothing():
    plain = run(SIGMOID)
    assert run(SIGMOID, train_dpo=PARAMS["train_dpo"] | {"token_budgets": {"dpo-2": 1}}) == plain
