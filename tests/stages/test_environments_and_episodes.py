"""Environments as stages, episodes that a policy or a script plays in them, and their replay."""

import importlib
import json
import logging
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import stage_inputs
from stage_inputs import ROOT, SEED, SEEDS

from stages import environment, replay
from stages.config import read_yaml
from stages.environments import definition, lookup_table
from stages.environments.definition import EnvironmentPreset
from stages.records import lines
from stages.records.episodes import EPISODES, Episode
from stages.rows import DATA, PROMPTS

STARTS = {"train": 3, "dev": 2, "test": 1}
OUTPUT = DATA / "environments/new"
PLAYED = DATA / f"episodes/new/{SEED}"
pytestmark = pytest.mark.usefixtures("stage_world")


def make_environment(on="own/calculator", **preset):
    data = read_yaml(ROOT / "params.yaml")["data"]
    data |= {"mixture": None, "max_prompt_tokens": 9, "max_completion_tokens": 9}
    words = stage_inputs.make_words("environment_own", on, "base")
    stage_inputs.run_stage("environment_own", words, preset, data=data)
    return definition.read_environment(OUTPUT)


def test_an_edit_of_the_class_makes_another_environment():
    before = make_environment(starts=STARTS)
    (DATA / "own/calculator").write_text("{ }")
    assert make_environment(starts=STARTS).own_digest != before.own_digest


def test_episodes_of_each_split_are_compared_with_those_of_another_process(monkeypatch):
    ids: set[str] = set()
    monkeypatch.setattr(environment.hash_seed, "check_hash_seed",
                        lambda _, plays: ids.update(row["id"] for _, row in plays))  # fmt: skip
    make_environment(starts=STARTS)
    assert ids == {f"{split}-{i}" for split, number in STARTS.items() for i in range(number)}


def test_another_file_to_look_up_makes_another_environment():
    (DATA / "own/lookup").write_text("{}")
    options = {"path": "data/raw/rivers.csv", "key": "river", "value": "length"}
    digests = []
    for length in (1, 2):
        lookup_table.read_table.cache_clear()
        rivers = [f"r{i},{i + length}" for i in range(60)]
        stage_inputs.write_raw("rivers.csv", ["river,length", *rivers])
        digests.append(make_environment("own/lookup", starts=STARTS, options=options).files)
    assert [list(files) for files in digests] == [["data/raw/rivers.csv"]] * 2
    assert digests[0] != digests[1]


@pytest.mark.parametrize(("prompt", "message"), [("{}\n", "2 + 2?\n"), ("<u>{}</u>", "2 + 2?")])
def test_rows_of_problems_have_the_message_that_the_prompt_has(prompt, message):
    (example,) = stage_inputs.make_prompts("dev", 1)
    row = replace(example, question="2 + 2?", prompt=prompt.format("2 + 2?"), answer="4")
    lines.write_lines(PROMPTS / "dev.jsonl", [row])
    preset = EnvironmentPreset(starts="prompts")
    expected = {"id": row.id, "question": "2 + 2?", "answer": "4", "message": message}
    assert environment.list_starts("dev", preset, "{question}\n") == [expected]
    with pytest.raises(ValueError, match="conversation"):
        environment.list_starts("dev", preset, "Solve: {question}")


def play_script():
    """Episodes of a seed."""
    words = ["new", "--by", "script", "--from", "base", "--on", "environments/sums"]
    stage_inputs.run_stage("play_script", [*words, "--split", "train"])
    return list(lines.read_lines(PLAYED / EPISODES, Episode))


def test_a_script_beyond_the_limits_of_its_environment_is_refused():
    episodes = play_script()
    longest = max(end - start for episode in episodes for start, end in episode.sampled)
    total = max(len(episode.prompt_ids) + len(episode.token_ids) for episode in episodes)
    for turn, whole in ((0, 0), (-1, 0), (0, -1)):
        stage_inputs.write_environment(max_turn_tokens=longest + turn, max_tokens=total + whole)
        is_refused = pytest.raises(ValueError, match="max_turn_tokens")
        with is_refused if turn or whole else nullcontext():
            assert len(play_script()) == 2


ADDER = '''
from stages.environments.environment import Reply
SLIP = 0
class Adder:
    """Adds the numbers that the assistant writes to the seed; three are the end."""
    def start(self, row, seed):
        self.total, self.turn = seed, 0
        return [{"role": "user", "content": row["id"]}], None
    def step(self, message):
        self.turn += 1
        self.total += int(message["content"]) + SLIP
        if self.turn == 3:
            return Reply(reward=float(self.total), done=True)
        return Reply(messages=[{"role": "user", "content": str(self.total)}])
'''
PLAYS = {"by": "policy", "on": "environments/sums", "split": "test"}
LEARNS = {"train": "grpo", "preset": "g", "from": "sft", "on": "environments/sums"}
PLAN = {
    "policies": {"grpo": LEARNS, "both": LEARNS, "sft": LEARNS | {"on": "demonstrations"}},
    "episodes": {"played": PLAYS | {"from": "grpo"}, "both": PLAYS | {"from": "both"}},
}


def make_sums(start, number):
    """Three turns with seed 5 and the numbers `number`, 2 and 3."""
    messages = [{"role": "user", "content": start}]
    for content, answer in ((number, 5 + number), (2, 7 + number), (3, None)):
        messages.append({"role": "assistant", "content": str(content)})
        messages += [] if answer is None else [{"role": "user", "content": str(answer)}]
    return Episode(
        id=start, index=number, env_seed=5, messages=messages, num_start_messages=1, tools=None,
        prompt_ids=[1], token_ids=[1, 0, 2, 0, 3], sampled=[(0, 1), (2, 3), (4, 5)],
        rewards=[0.0, 0.0, 10.0 + number], reward=10.0 + number, success=True, ending="done",
        error=None,
    )  # fmt: skip


@pytest.fixture
def adder(stage_world, monkeypatch, caplog):
    """Stored episodes and rollouts of two seeds in an environment of a class in adder.py."""
    caplog.set_level(logging.INFO)
    stage_inputs.write_yaml(Path("params.yaml"), {"seeds": list(SEEDS)})
    stage_inputs.write_json(DATA / "plan.json", PLAN)
    package = importlib.import_module("stages.environments.own")
    monkeypatch.setattr(package, "__path__", [str(stage_world)])
    monkeypatch.delitem(sys.modules, "stages.environments.own.adder", raising=False)
    Path("adder.py").write_text(ADDER, encoding="utf-8")
    stage_inputs.write_environment(own="adder")
    for seed in SEEDS:
        played = [make_sums(f"test-{start}", at) for start in range(2) for at in range(2)]
        lines.write_lines(DATA / f"episodes/played/{seed}" / EPISODES, played)
        path = DATA / f"policies/grpo/training/{seed}/rollouts.jsonl"
        path.parent.mkdir(parents=True)
        rollouts = [{"step": step, "episode": asdict(make_sums("train-1", step))}
                    for step in range(3)]  # fmt: skip
        path.write_text("".join(json.dumps(row) + "\n" for row in rollouts), encoding="utf-8")


@pytest.mark.usefixtures("adder")
def test_an_environment_that_answers_otherwise_beside_others_is_refused():
    text = ADDER.replace('int(message["content"])', 'len(message["content"])')
    Path("adder.py").write_text(text.replace("self.total, self.turn =", "Adder.total, self.turn ="))
    (DATA / "own/adder").write_text("{}")
    with pytest.raises(ValueError, match="beside others"):
        make_environment("own/adder", starts=STARTS)
    assert not OUTPUT.exists()


@pytest.mark.parametrize(("name", "count"), [("played", 4), ("episodes/played", 4), ("grpo", 3)])
@pytest.mark.usefixtures("adder")
def test_episodes_and_rollouts_of_an_environment_that_answers_as_it_did_are_as_stored(
    name, count, caplog
):
    replay.main(name)
    assert [text.split(": ")[1].split()[0] for text in caplog.messages] == [str(count)] * 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("adder")
def test_the_first_difference_of_any_seed_is_named_and_the_status_is_1(seed, caplog):
    path = DATA / f"episodes/played/{seed}" / EPISODES
    episodes = list(lines.read_lines(path, Episode))
    changed = [replace(row, rewards=[0.0, 0.0, 99.0]) for row in episodes[2:]]
    lines.write_lines(path, [*episodes[:2], *changed])
    with pytest.raises(SystemExit) as caught:
        replay.main("played")
    assert caught.value.code == 1
    (message,) = [text for text in caplog.messages if f"/{seed}/{EPISODES}" in text]
    for text in ("line 3: row 'test-1', episode 0", "turn 3", "99.0", "10.0"):
        assert text in message


@pytest.mark.parametrize(("name", "mentions"), [
    ("", "policies/grpo"), ("sft", "policies/grpo"), ("both", "episodes/both, policies/both"),
    ("policies/both", "dvc checkout"), ("played", "test-1"),
])  # fmt: skip
@pytest.mark.usefixtures("adder")
def test_what_cannot_be_replayed_is_refused(name, mentions):
    definition.write_rows(DATA / "environments/sums", "test", [{"id": "test-0"}])
    with pytest.raises(ValueError, match=mentions):
        replay.main(name)
