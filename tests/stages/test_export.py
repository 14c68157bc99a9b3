"""A policy's folder for other tools: its prompt, its card, and that nothing of the run changes."""

import shutil
from pathlib import Path

import pytest
import studied_run
import torch
from ruamel.yaml import YAML
from transformers import AutoModelForCausalLM, AutoTokenizer

from stages import export
from stages.models.prompting import render_prompts
from stages.models.row_policy import TinyConfig, build_tiny
from stages.rows import DATA

TEMPLATE = 'Say "1":\n{question}\n'
PLAN = {
    "policies": {
        "sft": {"train": "sft", "preset": "sft", "from": "base", "on": "demonstrations"},
        "grpo": {"train": "grpo", "preset": "mine", "from": "sft", "on": "rewards/rule"},
    },
    "rewards": {"rule": {"by": "rule", "preset": "rule", "from": "base", "on": "prompts"}},
}


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stages").mkdir()
    studied_run.write_yaml(Path("stages/presets.yaml"), {"sft": {}, "mine": {}, "rule": {}})
    params = {"policies": PLAN["policies"], "seeds": [0, 1], "model": {"path": "mine/base"}}
    studied_run.write_yaml(Path("params.yaml"), params | {"data": {"prompt_template": TEMPLATE}})
    studied_run.write_json(DATA / "plan.json", PLAN)
    card = {"source": "mine", "licence": "MIT", "counts": {"test": 20}, "overlaps": {}}
    studied_run.write_json(DATA / "prepared/data_card.json", card)
    studied_run.write_json(DATA / "prompts/facts.json", {})
    estimate = {"value": 0.75, "low": 0.5, "high": 1.0}
    metrics = {
        "baseline": "sft", "confidence": 0.95, "verdict": ["grpo is better."],
        "policies": {name: {"mean_accuracy": estimate, "greedy_accuracy": estimate}
                     for name in PLAN["policies"]},
        "gains": {"mean_accuracy": {"grpo": {"value": 0.25, "low": 0.125, "high": 0.375}}},
    }  # fmt: skip
    studied_run.write_json(export.METRICS, metrics)
    numbers = {"num_problems": 20, "greedy_accuracy": 0.5, "mean_accuracy": 0.75}
    for seed in (0, 1):
        studied_run.write_json(DATA / f"evaluations/grpo/{seed}/metrics.json", numbers)
        tokens = {"generated_tokens": 7, "trained_tokens": 7}
        studied_run.write_json(DATA / f"policies/grpo/training/{seed}/metrics.json", tokens)
        tokenizer = studied_run.words()
        folder = DATA / f"policies/grpo/model/{seed}"
        build_tiny(TinyConfig(**studied_run.TINY), tokenizer, seed).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def test_a_message_has_the_ids_of_a_training_prompt() -> None:
    export.main("grpo", "out", "1")
    tokenizer = AutoTokenizer.from_pretrained("out")
    question = "1 + 2 = ?"
    message = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    trained = AutoTokenizer.from_pretrained(DATA / "policies/grpo/model/1")
    assert [text] == render_prompts([question], trained, TEMPLATE)
    model = AutoModelForCausalLM.from_pretrained("out")
    saved = AutoModelForCausalLM.from_pretrained(DATA / "policies/grpo/model/1")
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), saved.parameters(), strict=True)
    )


def test_a_chat_template_of_the_model_stays() -> None:
    folder = DATA / "policies/grpo/model/0"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{{ messages[0].content }}!"
    tokenizer.save_pretrained(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    export.main("grpo", "out")
    after = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    assert after.pop("README.md")
    assert after == before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_card_has_accuracies_with_intervals_the_gain_and_the_data() -> None:
    export.main("grpo", "out")
    _, header, body = Path("out/README.md").read_text(encoding="utf-8").split("---\n", 2)
    content = YAML(typ="safe").load(header)
    assert content["license"] == "mit"
    assert content["base_model"] == "mine/base"
    assert "75.0 % [50.0, 100.0] | **+25.0 [+12.5, +37.5]**" in body
    assert "grpo is better." in body
    assert "`policies/sft`, `rewards/rule`" in body
    assert "unknown (no git repository)" in body


@pytest.mark.parametrize(
    ("words", "mentions"),
    [
        (("gpro", "out"), "grpo"),
        (("grpo",), "folder"),
        (("grpo", "out", "7"), "0, 1"),
        (("grpo", "stages"), "exists"),
    ],
)
def test_refusals_name_what_there_is(words: tuple[str, ...], mentions: str) -> None:
    with pytest.raises(ValueError, match=mentions):
        export.main(*words)
    assert not Path("out").exists()


def test_a_policy_that_is_not_there_is_no_empty_folder() -> None:
    shutil.rmtree(DATA / "policies/grpo/model/0")
    with pytest.raises(ValueError, match="dvc checkout"):
        export.main("grpo", "out")
    assert not Path("out").exists()
