"""The stage on a random model: what it writes suffices to score by, and the same again."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE, CPU, compute
from tiny_rollouts import OPTIM

from stages import train_process_reward
from stages.models import model_tokenizer as tokenizers
from stages.models import policy, process_scorer
from stages.models.config import TinyConfig, build_tiny
from stages.models.process_head import Solution
from stages.records import lines
from stages.records.steps import StepLabels

TINY = {
    "hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
    "max_length": 64, "vocab_size": 800,
}  # fmt: skip
START, TRAIN, HELDOUT = "train_sft/sft/policy", "label_steps/train", "label_steps/heldout"
RIGHT, WRONG = ["3 + 4 = 7\n", "#### 7"], ["3 + 4 = 8\n", "#### 8"]


def write_params(**changes):
    section = {
        "step_token": "<|step|>",
        "separator": "\n",
        "targets": {"kind": "hard", "threshold": 0.0},
        "class_balance": "none",
        "up_to_first_error": False,
        "num_epochs": 30,
        "batch_size": 2,
        "optim": OPTIM,
    }
    content = {
        "seed": 0,
        "compute": COMPUTE,
        "lora": {"rank": 0, "alpha": 16},
        "train_process_reward": section | changes,
    }
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)


def rows(numbers, tokenizer, prompt="sum?\n"):
    return [
        StepLabels(
            id=f"p{number}",
            index=index,
            prompt=prompt,
            prompt_ids=tokenizer(prompt)["input_ids"],
            steps=steps,
            step_ids=[tokenizer(step)["input_ids"] for step in steps],
            labels=[float(steps is RIGHT)] * 2,
            num_completions=[4, 0],
            true_labels=[steps is RIGHT] * 2,
            correct=steps is RIGHT,
            source="math_shepherd",
        )
        for number in numbers
        for index, steps in enumerate((RIGHT, WRONG))
    ]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = tokenizers.train_tokenizer(["3 + 4 = 7\n#### 7 sum?"], TINY["vocab_size"])
    policy.save(build_tiny(TinyConfig(**TINY), tokenizer, 0), tokenizer, Path("data") / START)
    lines.write(Path("data") / TRAIN / "steps.jsonl", rows(range(4), tokenizer))
    # Another problem: what is held out may share no prompt with what is learned.
    heldout = rows([7], tokenizer, prompt="7 sum?\n")
    lines.write(Path("data") / HELDOUT / "steps.jsonl", heldout)
    write_params()


def run(steps=TRAIN):
    train_process_reward.main("x", START, steps, HELDOUT)
    path = train_process_reward.OUTPUT / "x"
    return path, json.loads((path / "metrics.json").read_text(encoding="utf-8"))


def test_it_learns_what_is_right_and_its_folder_alone_scores():
    path, metrics = run()
    assert metrics["solutions"] == 8
    assert metrics["generated_tokens"] == 0
    assert metrics["trained_tokens"] > 0
    assert metrics["heldout"]["truth"]["balanced_accuracy"] == 1.0
    assert metrics["heldout"]["labels"]["auroc_within_problem"] == 1.0
    scorer = process_scorer.load(path / "process_model", compute(), CPU)
    tokenizer = tokenizers.train_tokenizer(["3 + 4 = 7\n#### 7 sum?"], TINY["vocab_size"])
    steps = scorer.split(tokenizer("".join(RIGHT))["input_ids"])
    assert len(steps) == 2
    (scores,) = scorer([Solution(prompt_ids=tokenizer("sum?\n")["input_ids"], steps=steps)])
    assert min(scores) > 0.5


def test_the_same_inputs_give_the_same_bytes():
    path, _ = run()
    model = path / "process_model"
    first = {file.name: file.read_bytes() for file in model.iterdir()}
    run()
    assert {file.name: file.read_bytes() for file in model.iterdir()} == first


def test_what_it_is_tested_on_is_not_learned():
    with pytest.raises(ValueError, match=r"found 1 in both, such as 'sum\?"):
        train_process_reward.main("x", START, TRAIN, TRAIN)
    assert not (train_process_reward.OUTPUT / "x/process_model").exists()


def test_an_unknown_step_token_is_refused_before_anything_is_learned():
    write_params(step_token="ки")
    with pytest.raises(ValueError, match=r"train_process_reward\.step_token"):
        run()
    assert not (train_process_reward.OUTPUT / "x/process_model").exists()
