"""The stage on random models: one row a step and problem, from the same random streams."""

import json
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE, CPU, compute

from stages import evaluate_checkpoints
from stages.models import model_tokenizer, policy, scalar_head, tiny
from stages.models import tokenizer as tokenizers
from stages.models.tiny import TinyConfig
from stages.records import lines
from stages.records.checkpoint_result import CheckpointResult
from stages.records.prompt import Prompt

RUN, START = "train_ppo/ppo", "train_sft/sft/policy"
SINGLE, SEVERAL = "train_reward_model/sft-0/reward_model", "assemble_ensembles/ensembles/sft"
DATA = evaluate_checkpoints.DATA
TINY = {
    "hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
    "max_length": 64, "vocab_size": 700,
}  # fmt: skip
SETTINGS = {
    "num_samples": 3, "temperature": 1.0, "max_new_tokens": 4, "num_bootstrap": 100,
    "confidence": 0.95,
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = tokenizers.train(["3 + 4 = 7"], TINY["vocab_size"])
    saved = {START: 0, f"{RUN}/checkpoints/step-0002": 1, f"{RUN}/policy": 2}
    for word, seed in saved.items():
        model = tiny.build(TinyConfig(**TINY), tokenizer, seed)
        policy.save(model, tokenizer, DATA / word)
    pad_id = model_tokenizer.pad_id(tokenizer)
    for word, seed in {SINGLE: 0, f"{SEVERAL}/0": 0, f"{SEVERAL}/1": 1}.items():
        model = scalar_head.from_policy(DATA / START, pad_id, compute(), CPU, head_seed=seed)
        policy.save(model, tokenizer, DATA / word)
    (DATA / RUN / "metrics.json").write_text('{"steps": 4}')
    ids = tokenizer("3 + 4 =")["input_ids"]
    rows = [
        Prompt(id=f"p{n}", task="solve", question="", prompt="", prompt_ids=ids[n:], answer="7")
        for n in range(3)
    ]
    lines.write(evaluate_checkpoints.PROMPTS / "dev.jsonl", rows)
    content = {
        "seed": 0,
        "compute": COMPUTE,
        "model": {"path": None, "revision": None, "tiny": TINY},
        "ensemble": {"kind": "mean"},
        "engine": "transformers",
        "evaluate_checkpoints": SETTINGS,
    }
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)


def evaluate(reward_model=SINGLE, ensemble=SEVERAL):
    evaluate_checkpoints.main("ppo", RUN, START, reward_model, ensemble, "dev")
    output = evaluate_checkpoints.OUTPUT / "ppo"
    rows = list(lines.read(output / "rows.jsonl", CheckpointResult))
    return rows, json.loads((output / "metrics.json").read_text(encoding="utf-8"))


def test_every_step_has_every_problem_and_the_start_has_not_moved():
    rows, metrics = evaluate()
    assert [(row.step, row.id) for row in rows] == [
        (step, f"p{n}") for step in (0, 2, 4) for n in range(3)
    ]
    assert list(metrics["steps"]) == ["0", "2", "4"]
    assert all(row.kl_k1 == row.kl_k3 == 0.0 for row in rows[:3])
    assert all(row.kl_k3 > 0.0 for row in rows[3:])
    assert all(row.ensemble_std > 0.0 and row.reward_model != row.ensemble for row in rows)
    assert all(0 < row.tokens <= 4 for row in rows)


def test_random_streams_are_the_same_at_every_step():
    # the same weights at three steps say the same, whatever the step is called
    for word in ("checkpoints/step-0002", "policy"):
        shutil.rmtree(DATA / RUN / word)
        shutil.copytree(DATA / START, DATA / RUN / word)
    rows, _ = evaluate()
    first, *others = ([{**_fields(row), "step": 0} for row in rows[i : i + 3]] for i in (0, 3, 6))
    assert all(other == first for other in others)


def test_without_scorers_nothing_is_scored():
    rows, metrics = evaluate("no_model", "no_model")
    assert {row.reward_model for row in rows} == {row.ensemble_std for row in rows} == {None}
    assert metrics["steps"]["4"]["ensemble"] is None


def test_without_checkpoints_there_are_the_start_and_the_end():
    shutil.rmtree(DATA / RUN / "checkpoints/step-0002")
    _, metrics = evaluate()
    assert list(metrics["steps"]) == ["0", "4"]


def _fields(row):
    return {name: getattr(row, name) for name in CheckpointResult.__slots__}
