"""A policy's folder for other tools: its weights, prompts as in training, and its card."""

import json
import re
import shutil
from pathlib import Path

import pytest
import studied_run
from ruamel.yaml import YAML
from studied_run import write_json
from tiny_checkpoints import CPU, compute
from transformers import AutoTokenizer

from stages import export
from stages.config import read_yaml
from stages.environments import definition
from stages.environments.definition import EnvironmentFile
from stages.models import policy
from stages.models.prompting import render_conversation, render_prompts
from stages.models.row_policy import TinyConfig, build_tiny
from stages.models.turn_rendering import TurnRenderer
from stages.records import lines
from stages.records.problems import Prompt, Turn
from stages.report import experiment
from stages.rows import DATA
from stages.runtime import runs

CARDS = read_yaml(Path(__file__).with_suffix(".yaml"))["cards"]
TEMPLATE = 'Say "1":\n{question}\n'
PLAN = {
    "policies": {
        "sft": {"train": "sft", "preset": "sft", "from": "base", "on": "demonstrations"},
        "grpo": {"train": "grpo", "preset": "mine", "from": "sft", "on": "rewards/rule"},
    },
    "rewards": {"rule": {"by": "rule", "preset": "rule", "from": "base", "on": "prompts"}},
}
INTERVAL = {"value": 0.75, "low": 0.5, "high": 1.0}
GAIN = {"grpo": {"value": 0.25, "low": 0.125, "high": 0.375}}
METRICS = {
    "baseline": "sft", "confidence": 0.95, "verdict": ["grpo is better."],
    "policies": dict.fromkeys(("sft", "grpo"), dict.fromkeys(
        ("mean_accuracy", "greedy_accuracy"), INTERVAL)),
    "gains": {"mean_accuracy": GAIN},
}  # fmt: skip
POLICY = DATA / "policies/grpo/model"


@pytest.fixture(autouse=True)
def finished_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stages").mkdir()
    studied_run.write_yaml(Path("stages/presets.yaml"), {"sft": {}, "mine": {}, "rule": {}})
    # The row of grpo is a recipe's.
    rows = {"sft": PLAN["policies"]["sft"]}
    params = {"policies": rows, "seeds": [0, 1], "model": {"path": "mine/base"}}
    studied_run.write_yaml(Path("params.yaml"), params | {"data": {"prompt_template": TEMPLATE}})
    write_json(DATA / "plan.json", PLAN)
    card = {"source": "mine", "licence": "MIT", "counts": {"test": 20}, "overlaps": {}}
    write_json(DATA / "prepared/data_card.json", card)
    write_json(DATA / "prompts/facts.json", {})
    write_prompts("solve")
    write_json(export.METRICS, METRICS)
    for seed in (0, 1):
        numbers = {"num_problems": 20, "greedy_accuracy": 0.5, "mean_accuracy": 0.75}
        write_json(DATA / f"evaluations/grpo/{seed}/metrics.json", numbers)
        tokens = {"generated_tokens": 7, "trained_tokens": 7}
        write_json(DATA / f"policies/grpo/training/{seed}/metrics.json", tokens)
        tokenizer = studied_run.words()
        model = build_tiny(TinyConfig(**studied_run.TINY), tokenizer, seed)
        model.save_pretrained(POLICY / str(seed))
        tokenizer.save_pretrained(POLICY / str(seed))


def write_prompts(*tasks):
    rows = [Prompt(id=task, task=task, question="1?", prompt="1?", answer=None, prompt_ids=[5])
            for task in tasks]  # fmt: skip
    lines.write_lines(DATA / "prompts/test.jsonl", rows)


def read_card():
    return Path("out/README.md").read_text(encoding="utf-8")


def render(*turns):
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    tokenizer = AutoTokenizer.from_pretrained("out")
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)


TALK = (Turn("system", 'Be "brief".'), Turn("user", "Hi\nyou"), Turn("assistant", "Hello"),
        Turn("user", "{{ 1 }}?"))  # fmt: skip


@pytest.mark.parametrize("tasks", [["solve"], ["chat"], ["solve", "chat"]], ids=" and ".join)
def test_messages_are_rendered_as_the_prompts_of_training(tasks):
    write_prompts(*tasks)
    export.main("grpo", "out")
    trained = AutoTokenizer.from_pretrained(POLICY / "0")
    for turns in (TALK, TALK[1:], TALK[1:2]):
        if tasks == ["solve"] or ("solve" in tasks and len(turns) == 1):
            (expected,) = render_prompts([turns[-1].content], trained, TEMPLATE)
        else:
            expected = render_conversation(turns, trained)[0]
        assert render(*turns) == expected


@pytest.mark.parametrize(("words", "seed"), [(("grpo", "out"), 0), (("grpo", "out", "1"), 1)])
def test_the_weights_are_those_of_the_seed_by_default_the_first(words, seed):
    export.main(*words)
    for name in ("model.safetensors", "tokenizer.json"):
        assert Path("out", name).read_bytes() == (POLICY / str(seed) / name).read_bytes()
    assert f"Weights of seed {seed};" in read_card()


def test_a_chat_template_of_the_model_stays():
    tokenizer = AutoTokenizer.from_pretrained(POLICY / "0")
    tokenizer.chat_template = "{{ messages[0].content }}!"
    tokenizer.save_pretrained(POLICY / "0")
    before = {path.name: path.read_bytes() for path in (POLICY / "0").iterdir()}
    export.main("grpo", "out")
    assert {path.name for path in Path("out").iterdir()} == before.keys() | {"README.md"}
    assert Path("out/chat_template.jinja").read_bytes() == before["chat_template.jinja"]
    assert before == {path.name: path.read_bytes() for path in (POLICY / "0").iterdir()}


@pytest.mark.parametrize(("best", "values"), [
    (0.0, {"do_sample": False}),
    (0.75, {"do_sample": True, "temperature": 0.75, "top_k": 0, "top_p": 1.0}),
])  # fmt: skip
def test_the_best_temperature_on_dev_is_the_default_of_other_tools(best, values):
    write_json(export.METRICS, METRICS | {"temperatures": {"policies": {"grpo": {"best": best}}}})
    export.main("grpo", "out")
    content = json.loads(Path("out/generation_config.json").read_bytes())
    names = ("do_sample", "temperature", "top_k", "top_p")
    assert {name: content[name] for name in names if content.get(name) is not None} == values
    policy.load_policy("out", compute(), CPU)  # and it can be trained on


def test_the_program_of_the_card_runs(monkeypatch, capsys):
    export.main("grpo", "out")
    (program,) = re.findall(r"```python\n(.*?)```", read_card(), re.DOTALL)
    exec(program, {})
    assert capsys.readouterr().out


def test_the_policy_is_described_by_the_parameters_that_it_was_trained_with():
    model = read_yaml()["model"] | {"path": "mine/then"}
    stages = {
        "prepare_data": {"data": {"prompt_template": "Then: {question}"}, "model": model},
        "train@grpo": {"seeds": [1, 0], "model": model},
    }
    lock = {name: {"params": {"params.yaml": params}} for name, params in stages.items()}
    lock["train@grpo"]["params"]["stages/presets.yaml"] = {"mine": {"then": 1}}
    studied_run.write_yaml(Path("dvc.lock"), {"stages": lock})
    export.main("grpo", "out")
    assert render(*TALK[1:2]) == "Then: Hi\nyou"
    for text in ("`mine/then`", "`{then: 1}`", "Weights of seed 1;", "the seeds 1, 0"):
        assert text in read_card()


def leave_out():
    shutil.rmtree(DATA / "evaluations/grpo")
    policies = {"sft": METRICS["policies"]["sft"]}
    write_json(DATA / "evaluations/sft/0/metrics.json", {})
    write_json(export.METRICS, METRICS | {"policies": policies, "gains": {}})


def cut_every_seed(*seeds):
    for seed in seeds or (0, 1):
        write_json(DATA / f"evaluations/grpo/{seed}/metrics.json", {"cut/test": 0.5})
    write_json(export.METRICS, METRICS | {"policies": {"sft": INTERVAL}, "gains": {}})


def cut_a_later_seed():
    cut_every_seed(1)


def remove_gold_answers():
    write_json(export.METRICS, METRICS | {"policies": {"sft": {}, "grpo": {}}})
    for seed in (0, 1):
        path = DATA / f"evaluations/grpo/{seed}/metrics.json"
        write_json(path, {"num_problems": 20, "mean_tokens": 7.5})


def evaluate():
    more = {"auc/outcome": 0.875, "best_of/longest/4": 0.125, "pass/2": 0.375,
            "best_of/outcome/4": 0.625, "pass/4": 0.5, "mean_strict": 0.75}  # fmt: skip
    for seed in (0, 1):
        path = DATA / f"evaluations/grpo/{seed}/metrics.json"
        write_json(path, json.loads(path.read_bytes()) | more | {"dev_accuracy": 0.25 * (1 + seed)})


def use_folder():
    Path("ann/base").mkdir(parents=True)
    model = {"path": str(Path("ann/base").resolve())}
    studied_run.write_yaml(Path("params.yaml"), read_yaml() | {"model": model})


def put_into_environment():
    row = PLAN["policies"]["grpo"] | {"on": "environments/game"}
    environment = {"by": "own", "preset": "mine", "from": "base", "on": "own/game"}
    plan = {"policies": PLAN["policies"] | {"grpo": row}, "environments": {"game": environment}}
    write_json(DATA / "plan.json", plan)
    folder = DATA / "environments/game"
    folder.mkdir(parents=True)
    file = EnvironmentFile.model_validate({
        "kind": "textarena", "preset": {"starts": "prompts"}, "own": None, "own_digest": None,
        "packages": {"textarena": "0.7.4"},
    })  # fmt: skip
    definition.write_environment(folder, file)
    success = {"success": {"value": 0.5, "low": 0.25, "high": 0.75}}
    episodes = {"game": {"baseline": "sft", "num_starts": 64, "policies": {"grpo": success},
                         "gains": {"success": GAIN}}}  # fmt: skip
    write_json(export.METRICS, METRICS | {"episodes": episodes})
    (DATA / "prompts/test.jsonl").unlink()  # of no use here, and not everywhere checked out


CHANGES = {change.__name__: change for change in (
    leave_out, cut_every_seed, cut_a_later_seed, remove_gold_answers, evaluate, use_folder,
    put_into_environment)}  # fmt: skip


@pytest.mark.parametrize("case", CARDS, ids=lambda case: case.get("change", "whole"))
def test_the_card_says_what_is_known_and_no_more(case, monkeypatch):
    monkeypatch.setattr(runs, "git_state", lambda: ("c0ffee", False))
    if "change" in case:
        CHANGES[case["change"]]()
    export.main("grpo", "out")
    card = read_card()
    assert "Exported at commit c0ffee." in card
    assert [text for text in case["has"] if text not in card] == []
    assert [text for text in case["has_not"] if text in card] == []
    assert experiment.digest_folder(DATA / "evaluations") in card
    YAML(typ="safe").load(card.split("---\n", 2)[1])


def test_a_policy_of_an_environment_has_the_chat_template_of_its_episodes():
    put_into_environment()
    export.main("grpo", "out")
    template = TurnRenderer(AutoTokenizer.from_pretrained(POLICY / "0")).tokenizer.chat_template
    assert AutoTokenizer.from_pretrained("out").chat_template == template


# --- only what dvc.lock names, to the bit
WEIGHTS = POLICY / "1/model.safetensors"


def write_lock(digest):
    outs = [{"path": "data/policies/grpo/training", "md5": "0.dir"},
            {"path": str(POLICY), "hash": "md5", "md5": digest}]  # fmt: skip
    stages = {"train@grpo": {"cmd": "", "outs": outs}}
    studied_run.write_yaml(Path("dvc.lock"), {"schema": "2.0", "stages": stages})


def remove(path):
    return lambda: shutil.rmtree(path) if path.is_dir() else path.unlink()


def cut_weights():
    WEIGHTS.write_bytes(WEIGHTS.read_bytes()[:-1])


def flip_a_bit():
    write_lock(experiment.digest_folder(POLICY))
    export.check_policy("grpo", WEIGHTS.parent)
    content = WEIGHTS.read_bytes()
    WEIGHTS.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


REMEDY = f"`dvc checkout {POLICY}`.*`dvc repro`"


@pytest.mark.parametrize(("words", "damage", "mentions"), [
    (("gpro", "out"), None, "grpo"), (("grpo",), None, "folder"),
    (("grpo", "out", "7"), None, "0, 1"), (("grpo", "stages"), None, "exists"),
    (("grpo", "out"), remove(POLICY / "0"), "dvc checkout"),
    (("grpo", "out"), remove(DATA / "prompts/test.jsonl"), r"test\.jsonl"),
    (("grpo", "out"), remove(export.METRICS), r"metrics\.json"),
    (("grpo", "out", "1"), cut_weights, REMEDY), (("grpo", "out", "1"), flip_a_bit, REMEDY),
])  # fmt: skip
def test_what_cannot_be_exported_is_refused_and_leaves_no_folder(words, damage, mentions):
    if damage is not None:
        damage()
    with pytest.raises(ValueError, match=mentions):
        export.main(*words)
    assert not Path("out").exists()
