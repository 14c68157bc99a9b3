"""A policy's folder for other tools: its prompt, its card, and that nothing of the run changes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import studied_run
import torch
from environments_installed import needs_environments
from ruamel.yaml import YAML
from transformers import AutoModelForCausalLM, AutoTokenizer

from stages import export
from stages.config import read_yaml
from stages.engines.transformers import TransformersSampler
from stages.environments import definition
from stages.environments.catalogue import make_factory
from stages.environments.definition import EnvironmentFile, EnvironmentPreset
from stages.environments.environment import Reply
from stages.loops.episodes import Player
from stages.models.model_tokenizer import end_id, make_decode
from stages.models.prompting import get_bos_text, render_conversation, render_prompts
from stages.models.row_policy import TinyConfig, build_tiny
from stages.models.turn_rendering import TurnRenderer
from stages.records import lines
from stages.records.problems import Prompt, Turn
from stages.report import experiment
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
    # the row of grpo is a recipe's
    rows = {"sft": PLAN["policies"]["sft"]}
    params = {"policies": rows, "seeds": [0, 1], "model": {"path": "mine/base"}}
    studied_run.write_yaml(Path("params.yaml"), params | {"data": {"prompt_template": TEMPLATE}})
    studied_run.write_json(DATA / "plan.json", PLAN)
    card = {"source": "mine", "licence": "MIT", "counts": {"test": 20}, "overlaps": {}}
    studied_run.write_json(DATA / "prepared/data_card.json", card)
    studied_run.write_json(DATA / "prompts/facts.json", {})
    write_prompts("solve")
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


def write_prompts(*tasks: str) -> None:
    rows = [
        Prompt(id=task, task=task, question="1?", prompt="1?", answer=None, prompt_ids=[5])
        for task in tasks
    ]
    lines.write_lines(DATA / "prompts/test.jsonl", rows)


def render(*turns: Turn) -> str:
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    tokenizer = AutoTokenizer.from_pretrained("out")
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)


TALK = (
    Turn("system", 'Be "brief".'), Turn("user", "Hi\nyou"), Turn("assistant", "Hello"),
    Turn("user", "{{ 1 }}?"),
)  # fmt: skip


@pytest.mark.parametrize("tasks", [["chat"], ["solve", "chat"]])
def test_a_conversation_has_the_text_of_a_training_prompt(tasks: list[str]) -> None:
    write_prompts(*tasks)
    export.main("grpo", "out")
    trained = AutoTokenizer.from_pretrained(DATA / "policies/grpo/model/0")
    for turns in (TALK, TALK[1:]):
        assert render(*turns) == render_conversation(turns, trained)[0]
    alone = TALK[1]
    expected = render_conversation([alone], trained)[0]
    if "solve" in tasks:
        (expected,) = render_prompts([alone.content], trained, TEMPLATE)
    assert render(alone) == expected


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
    digest = experiment.digest_folder(DATA / "evaluations")
    assert f"git log --reverse -S {digest}" in body


def test_without_gold_answers_the_card_has_no_accuracy() -> None:
    metrics = json.loads(export.METRICS.read_text())
    for estimates in metrics["policies"].values():
        del estimates["mean_accuracy"], estimates["greedy_accuracy"]
    studied_run.write_json(export.METRICS, metrics)
    for seed in (0, 1):
        path = DATA / f"evaluations/grpo/{seed}/metrics.json"
        studied_run.write_json(path, {"num_problems": 20, "mean_tokens": 7.5})
    export.main("grpo", "out")
    card = Path("out/README.md").read_text(encoding="utf-8")
    assert "model-index" not in card
    assert "accuracy" not in card
    assert "| mean tokens | 7.500 | 7.500 | 7.500 |" in card


def test_a_folder_of_the_user_is_no_model_of_a_hub(tmp_path: Path) -> None:
    path = tmp_path / "ann/base"
    path.mkdir(parents=True)
    params = read_yaml() | {"model": {"path": str(path)}}
    studied_run.write_yaml(Path("params.yaml"), params)
    export.main("grpo", "out")
    card = Path("out/README.md").read_text(encoding="utf-8")
    assert "began as `base`" in card
    assert "base_model" not in card
    assert "ann" not in card


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


def test_prompts_that_are_not_there_are_named_with_the_remedy() -> None:
    (DATA / "prompts/test.jsonl").unlink()
    with pytest.raises(ValueError, match=r"test\.jsonl is missing: .*dvc checkout"):
        export.main("grpo", "out")
    assert not Path("out").exists()


def put_into_environment() -> None:
    """Let grpo be a policy of an environment, with episodes in the report."""
    row = {**PLAN["policies"]["grpo"], "on": "environments/game"}
    environment = {"by": "own", "preset": "mine", "from": "base", "on": "own/game"}
    plan = {"policies": {**PLAN["policies"], "grpo": row}, "environments": {"game": environment}}
    studied_run.write_json(DATA / "plan.json", plan)
    folder = DATA / "environments/game"
    folder.mkdir(parents=True)
    file = {
        "kind": "textarena", "preset": {"starts": "prompts"}, "own": None, "own_digest": None,
        "packages": {"textarena": "0.7.4"},
    }  # fmt: skip
    definition.write_environment(folder, EnvironmentFile.model_validate(file))
    metrics = json.loads(export.METRICS.read_text())
    metrics["episodes"] = {"game": {
        "baseline": "sft", "num_starts": 64,
        "policies": {"grpo": {"success": {"value": 0.5, "low": 0.25, "high": 0.75}}},
        "gains": {"success": {"grpo": {"value": 0.25, "low": 0.125, "high": 0.375}}},
    }}  # fmt: skip
    studied_run.write_json(export.METRICS, metrics)


def test_the_card_names_the_environment_its_versions_and_the_success_there() -> None:
    put_into_environment()
    (DATA / "prompts/test.jsonl").unlink()  # of no use here, and not everywhere checked out
    export.main("grpo", "out")
    card = Path("out/README.md").read_text(encoding="utf-8")
    assert "`game`, of kind textarena: textarena 0.7.4." in card
    assert "50.0 % [25.0, 75.0] of the episodes from 64 test starts, **+25.0 [+12.5" in card
    assert "was put to the policy as" not in card


def test_a_chat_template_of_an_environment_has_the_tokens_of_training() -> None:
    put_into_environment()
    export.main("grpo", "out")
    tokenizer = AutoTokenizer.from_pretrained("out")
    trained = AutoTokenizer.from_pretrained(DATA / "policies/grpo/model/0")
    renderer = TurnRenderer(trained)
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


NUM_TOKENS = 12
"""Most tokens of a turn."""


class Threes:
    """Asks for two digits, and pays if neither is a multiple of three."""

    def start(self, row: Any, seed: int) -> tuple[list[dict[str, str]], None]:
        self.turn = 0
        return [{"role": "user", "content": f"{row['id']} = ?"}], None

    def step(self, message: Any) -> Reply:
        self.turn += 1
        is_right = message["content"].strip() in {"1", "2", "4", "5", "7", "8"}
        if self.turn == 2 or not is_right:
            return Reply(reward=float(is_right), done=True)
        return Reply(messages=[{"role": "user", "content": "+ ?"}])


TWO_DIGITS = [f"{a % 4} = ?{a}</s>\n+ ?\n{b}</s>" for a in range(1, 10) for b in range(1, 10)]
ANSWERS = [f"{a} = ?#### {b}</s>" for a in range(1, 5) for b in range(1, 5)]


def learn(folder: Path, texts: list[str]) -> None:
    """Train a policy to continue as the texts do, with each of them as often."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    start, end = get_bos_text(tokenizer), str(tokenizer.convert_ids_to_tokens(end_id(tokenizer)))
    whole = [start + text.replace("</s>", end) for text in texts]
    batch = torch.tensor(tokenizer(whole, add_special_tokens=False)["input_ids"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


@pytest.mark.slow
def test_an_exported_policy_has_the_same_success_in_a_loop_without_our_code() -> None:
    rows = [{"id": str(number)} for number in range(4)]
    here, _ = play_twice(TWO_DIGITS, Threes, rows, play_alone)
    assert 0.2 < here < 0.8


@needs_environments
@pytest.mark.slow
def test_an_exported_policy_has_the_same_success_by_the_interface_of_a_package() -> None:
    rows = [
        {"id": str(number), "answer": str(number), "message": f"{number} = ?"}
        for number in range(1, 5)
    ]
    _, there = play_twice(ANSWERS, make_factory("skyrl_gym", {"name": "gsm8k"}), rows, answer_gsm8k)
    assert 0.1 < there < 0.5


def play_twice(
    texts: list[str], factory: Any, rows: list[dict[str, Any]], play_outside: Any
) -> tuple[float, float]:
    """Success of a policy that learned `texts`, here and exported, which differ by chance alone."""
    num_each = 40
    put_into_environment()
    folder = DATA / "policies/grpo/model/0"
    learn(folder, texts)
    export.main("grpo", "out")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    sampler = TransformersSampler(
        model=model, eos_ids=frozenset([end_id(tokenizer)]), pad_id=end_id(tokenizer), max_batch=64
    )
    preset = {"starts": "prompts", "max_turns": 2, "max_turn_tokens": NUM_TOKENS, "max_tokens": 64}
    player = Player(
        factory=factory, renderer=TurnRenderer(tokenizer),
        limits=EnvironmentPreset.model_validate(preset),
    )  # fmt: skip
    played = player.play(
        sampler, make_decode(tokenizer), rows, temperature=1.0, group_size=num_each, step=0, seed=0
    ).episodes
    assert played is not None
    here = sum(episode.success for episode in played) / len(played)
    exported = AutoTokenizer.from_pretrained("out"), AutoModelForCausalLM.from_pretrained("out")
    torch.manual_seed(0)
    alone = [play_outside(*exported, row=row) for row in rows * num_each]
    there = sum(alone) / len(alone)
    deviation = ((here * (1 - here) + there * (1 - there)) / len(alone)) ** 0.5
    assert abs(here - there) < 1.96 * deviation
    return here, there


def answer_gsm8k(tokenizer: Any, model: Any, row: Any) -> bool:
    """One episode by transformers and SkyRL-gym's own interface."""
    import skyrl_gym  # pyright: ignore[reportMissingImports]

    extras = {"reward_spec": {"ground_truth": row["answer"]}}
    environment = skyrl_gym.make("gsm8k", env_config=None, extras=extras)
    messages, _ = environment.init([{"role": "user", "content": row["message"]}])
    text = sample_reply(tokenizer, model, messages)
    reward = 0.0 if text is None else environment.step(text)["reward"]
    environment.close()
    return reward == 1


def sample_reply(tokenizer: Any, model: Any, messages: Any) -> str | None:
    """Reply by transformers alone; None: it does not end."""
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    whole = model.generate(
        **inputs, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=NUM_TOKENS,
        pad_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    sampled = whole[0, inputs["input_ids"].shape[1] :]
    if sampled[-1] != tokenizer.eos_token_id:
        return None
    return tokenizer.decode(sampled, skip_special_tokens=True)


def play_alone(tokenizer: Any, model: Any, row: Any) -> bool:
    """One episode by transformers and the environment's own methods."""
    environment = Threes()
    messages, _ = environment.start(row, 0)
    while True:
        text = sample_reply(tokenizer, model, messages)
        if text is None:
            return False
        messages.append({"role": "assistant", "content": text})
        reply = environment.step(messages[-1])
        if reply.done:
            return reply.reward == 1
        messages += [dict(answer) for answer in reply.messages]


@pytest.mark.parametrize(
    ("tasks", "problems", "conversations"),
    [({"solve"}, True, False), ({"chat"}, False, True), ({"solve", "chat"}, True, True)],
)
def test_the_card_says_how_the_prompts_that_there_are_were_put(
    tasks: set[str], problems: bool, conversations: bool
) -> None:
    described = export.describe_prompts("Solve: {question}", tasks)
    assert ('A problem was put to the policy as `"Solve: {question}"`' in described) == problems
    assert ("A conversation was put to the policy as it is" in described) == conversations
