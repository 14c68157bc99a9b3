"""A policy's folder for other tools: its weights, prompts as in training, and its card."""

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
import studied_run
from ruamel.yaml import YAML
from studied_run import write_json
from tiny_checkpoints import CPU, compute, plain_logprobs
from transformers import AutoTokenizer
from vllm_installed import build_llama, needs_vllm

from stages import export
from stages.config import read_yaml
from stages.engines import vllm
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


@needs_vllm
@pytest.mark.vllm
def test_vllm_reads_an_exported_folder():
    """With the rotary base of the policy, which is not the default of any tool."""
    model = build_llama(max_position_embeddings=64, vocab_size=len(studied_run.words()),
                        rope_parameters={"rope_type": "default", "rope_theta": 10.0})  # fmt: skip
    model.save_pretrained(POLICY / "0")
    export.main("grpo", "out")
    engine = vllm.start_vllm("out", dtype="float32", max_model_len=64)
    prompt = [*range(1, 9)] * 5
    (((sample,),)) = engine.sample(
        [prompt], [0], num_samples=1, temperature=1.0, max_new_tokens=16
    )  # fmt: skip
    engine.close()
    expected = plain_logprobs(model, prompt, sample.token_ids).tolist()
    assert sample.logprobs == pytest.approx(expected, abs=1e-3)


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


GAINED = "**+25.0 [+12.5, +37.5]**"
CARDS = [
    # a change of the finished run, what the card has, and what it has not
    (list, ["license: mit", 'base_model: "mine/base"', f"75.0 % [50.0, 100.0] | {GAINED}",
            "model-index", "grpo is better.", "`policies/sft`, `rewards/rule`"],
     ["## Environment"]),
    (leave_out, ["report does not compare this policy", "was not evaluated"],
     ["model-index", "accuracy |", METRICS["verdict"][0]]),
    (remove_gold_answers, ["| mean tokens | 7.500 | 7.500 | 7.500 |"], ["model-index", "accuracy"]),
    (evaluate, ["best of, outcome, 4 | 0.625 |", "pass, 4 | 0.500 |", "| seed 0 | seed 1 |",
      "dev accuracy | 0.375 | 0.250 | 0.500 |"],
     ["auc", "longest", "pass, 2", "strict"]),
    (use_folder, ["`base`"], ["base_model", "ann"]),
    (put_into_environment, ["`game`", "textarena 0.7.4", "50.0 % [25.0, 75.0]", "64 test",
                            f"{GAINED} points"], [TEMPLATE[:6]]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "present", "absent"), CARDS)
def test_the_card_says_what_is_known_and_no_more(change, present, absent, monkeypatch):
    monkeypatch.setattr(runs, "git_state", lambda: ("c0ffee", False))
    change()
    export.main("grpo", "out")
    card = read_card()
    assert "Exported at commit c0ffee." in card
    assert [text for text in present if text not in card] == []
    assert [text for text in absent if text in card] == []
    assert experiment.digest_folder(DATA / "evaluations") in card
    YAML(typ="safe").load(card.split("---\n", 2)[1])


@pytest.mark.parametrize(("words", "missing", "mentions"), [
    (("gpro", "out"), None, "grpo"), (("grpo",), None, "folder"),
    (("grpo", "out", "7"), None, "0, 1"),
    (("grpo", "stages"), None, "exists"), (("grpo", "out"), POLICY / "0", "dvc checkout"),
    (("grpo", "out"), DATA / "prompts/test.jsonl", r"test\.jsonl"),
    (("grpo", "out"), export.METRICS, r"metrics\.json"),
])  # fmt: skip
def test_what_cannot_be_exported_is_refused_and_leaves_no_folder(words, missing, mentions):
    if missing is not None:
        shutil.rmtree(missing) if missing.is_dir() else missing.unlink()
    with pytest.raises(ValueError, match=mentions):
        export.main(*words)
    assert not Path("out").exists()


def test_a_chat_template_of_an_environment_has_the_tokens_of_training():
    put_into_environment()
    export.main("grpo", "out")
    tokenizer = AutoTokenizer.from_pretrained("out")
    renderer = TurnRenderer(AutoTokenizer.from_pretrained(POLICY / "0"))
    tools = [{"type": "function", "function": {"name": "add"}}]
    function = {"name": "add", "arguments": {"a": 1, "b": "é"}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
    messages = [{"role": "user", "content": "1 + 2 = ?\n"}]
    expected = renderer.render_start(messages, tools)
    for message, answer in (
        (call, {"role": "tool", "content": "3"}),
        ({"role": "assistant", "content": "3"}, {"role": "user", "content": "2 ?"}),
    ):
        expected += renderer.render_reply(messages, message, tools)
        expected += renderer.render_new([*messages, message], [answer], tools)
        messages += [message, answer]
    ids = tokenizer.apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, return_dict=False
    )
    assert ids == expected


# --- only what dvc.lock names, to the bit
WEIGHTS = "model.safetensors"
DAMAGES = {
    # what becomes of a file's content; None: the file is gone
    "cut": lambda content: content[:-1], "empty": lambda _: b"", "missing": lambda _: None,
    "flipped": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
}  # fmt: skip


def write_lock(digest):
    outs = [{"path": "data/policies/grpo/training", "md5": "0.dir"},
            {"path": str(POLICY), "hash": "md5", "md5": digest}]  # fmt: skip
    stages = {"train@grpo": {"cmd": "", "outs": outs}}
    studied_run.write_yaml(Path("dvc.lock"), {"schema": "2.0", "stages": stages})


NOTICED = [
    *itertools.product([WEIGHTS, "config.json", "tokenizer.json"], DAMAGES, [True]),
    *itertools.product([WEIGHTS], DAMAGES.keys() - {"flipped"}, [False]),  # by its length alone
]


@pytest.mark.parametrize(("name", "damage", "has_lock"), sorted(NOTICED))
def test_a_damaged_policy_is_refused_with_what_to_do(name, damage, has_lock):
    write_lock(experiment.digest_folder(POLICY))
    export.check_policy("grpo", POLICY / "1")
    if not has_lock:
        Path("dvc.lock").unlink()
    path = POLICY / "1" / name
    if (content := DAMAGES[damage](path.read_bytes())) is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=f"`dvc checkout {POLICY}`.*`dvc repro`"):
        export.check_policy("grpo", POLICY / "1")


def test_the_command_refuses_before_it_writes():
    write_lock("x.dir")
    with pytest.raises(ValueError, match=r"as dvc\.lock has it, with the digest x"):
        export.main("grpo", "out", "1")
    assert not Path("out").exists()
