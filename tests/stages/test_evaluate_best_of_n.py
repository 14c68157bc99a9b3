"""The stage on a random model: large pools of the first problems, each with its scores."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE, CPU, compute

from stages import evaluate_best_of_n
from stages.models import model_tokenizer, policy, scalar_head, tiny
from stages.models import tokenizer as tokenizers
from stages.models.tiny import TinyConfig
from stages.records import lines
from stages.records.prompt import Prompt
from stages.records.scored_pool import ScoredPool

START, SINGLE = "train_sft/sft/policy", "train_reward_model/sft-0/reward_model"
TINY = {
    "hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
    "max_length": 64, "vocab_size": 700,
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = tokenizers.train(["3 + 4 = 7"], TINY["vocab_size"])
    policy.save(tiny.build(TinyConfig(**TINY), tokenizer, 0), tokenizer, Path("data") / START)
    scorer = scalar_head.from_policy(
        Path("data") / START, model_tokenizer.pad_id(tokenizer), compute(), CPU, head_seed=0
    )
    policy.save(scorer, tokenizer, Path("data") / SINGLE)
    ids = tokenizer("3 + 4 =")["input_ids"]
    rows = [
        Prompt(id=f"p{n}", task="solve", question="", prompt="", prompt_ids=ids, answer="7")
        for n in range(20)
    ]
    lines.write(evaluate_best_of_n.PROMPTS / "dev.jsonl", rows)


def evaluate(num_problems):
    content = {
        "seed": 0,
        "compute": COMPUTE,
        "model": {"path": None, "revision": None, "tiny": TINY},
        "ensemble": {"kind": "mean"},
        "engine": "transformers",
        "evaluate_best_of_n": {
            "num_problems": num_problems, "num_samples": 6, "temperature": 1.0, "max_new_tokens": 2,
        },
    }  # fmt: skip
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)
    evaluate_best_of_n.main("sft", START, SINGLE, "no_model", "dev")
    output = evaluate_best_of_n.OUTPUT / "sft"
    rows = list(lines.read(output / "rows.jsonl", ScoredPool))
    return rows, json.loads((output / "metrics.json").read_text(encoding="utf-8"))


def test_a_problem_s_pool_does_not_depend_on_how_many_there_are():
    rows, metrics = evaluate(3)
    assert [row.id for row in rows] == ["p0", "p1", "p2"]
    assert all(len(row.correct) == len(row.reward_model) == 6 for row in rows)
    assert {row.ensemble for row in rows} == {None}
    assert metrics["problems"] == 3
    assert 0 < metrics["generated_tokens"] <= 3 * 6 * 2
    # same prompt, other streams
    assert rows[0].reward_model != rows[1].reward_model
    every, _ = evaluate(None)
    assert len(every) == 20
    assert every[:3] == rows
