"""Episodes of a row replayed: equal, or the first difference with exit status 1."""

import importlib
import json
import logging
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import studied_run

from stages import replay
from stages.environments import definition
from stages.environments.definition import EnvironmentFile, EnvironmentPreset
from stages.records import lines
from stages.records.episodes import Episode
from stages.rows import DATA

SOURCE = '''
"""Adds the numbers that the assistant writes to the seed; three are the end."""
from stages.environments.environment import Reply
SLIP = 0
class Adder:
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
PLAN = {
    "policies": {
        "grpo": {"train": "grpo", "preset": "g", "from": "sft", "on": "environments/adder"},
        "sft": {"train": "sft", "preset": "s", "from": "base", "on": "demonstrations"},
        "both": {"train": "grpo", "preset": "g", "from": "sft", "on": "environments/adder"},
    },
    "episodes": {
        "played": {"by": "policy", "from": "grpo", "on": "environments/adder", "split": "test"},
        "both": {"by": "policy", "from": "both", "on": "environments/adder", "split": "test"},
    },
}


def make_episode(start: str, number: int) -> Episode:
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


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO)
    studied_run.write_yaml(Path("params.yaml"), {"seeds": [0, 1]})
    studied_run.write_json(DATA / "plan.json", PLAN)
    package = importlib.import_module("stages.environments.own")
    monkeypatch.setattr(package, "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "stages.environments.own.adder", raising=False)
    Path("adder.py").write_text(SOURCE, encoding="utf-8")
    folder = DATA / "environments/adder"
    folder.mkdir(parents=True)
    definition.write_environment(
        folder,
        EnvironmentFile(
            kind="own",
            preset=EnvironmentPreset.model_validate({"starts": "prompts"}),
            own="adder",
            own_digest="0",
            packages={},
        ),
    )  # fmt: skip
    for split in ("train", "test"):
        definition.write_rows(folder, split, [{"id": f"{split}-{at}"} for at in range(2)])
    for seed in (0, 1):
        played = [make_episode(f"test-{start}", at) for start in range(2) for at in range(2)]
        lines.write_lines(DATA / f"episodes/played/{seed}/episodes.jsonl", played)
        rollouts = [
            {"step": step, "id": "train-1", "episode": asdict(make_episode("train-1", step))}
            for step in range(3)
        ]
        path = DATA / f"policies/grpo/training/{seed}/rollouts.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rollouts), encoding="utf-8")


def test_episodes_of_a_row_and_rollouts_of_a_policy_are_as_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, count in (("played", 4), ("episodes/played", 4), ("grpo", 3)):
        caplog.clear()
        replay.main(name)
        assert len(caplog.messages) == 2
        assert all(f": {count} episodes, as stored" in text for text in caplog.messages)


def test_the_first_difference_of_a_seed_is_named_and_the_status_is_1(
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = DATA / "episodes/played/1/episodes.jsonl"
    episodes = list(lines.read_lines(path, Episode))
    changed = [replace(row, rewards=[0.0, 0.0, 99.0]) for row in episodes[2:]]
    lines.write_lines(path, [*episodes[:2], *changed])
    with pytest.raises(SystemExit) as end:
        replay.main("played")
    assert end.value.code == 1
    first, second, _ = caplog.messages
    assert "0/episodes.jsonl: 4 episodes, as stored" in first
    assert "line 3: row 'test-1', episode 0" in second
    assert "turn 3, reward: expected 99.0, found 10.0" in second


def test_an_edited_environment_differs_in_the_rollouts_of_training(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Path("adder.py").write_text(SOURCE.replace("SLIP = 0", "SLIP = 1"), encoding="utf-8")
    with pytest.raises(SystemExit):
        replay.main("grpo")
    assert "line 1: step 1, row 'train-1', episode 0" in caplog.messages[0]
    assert "turn 1, messages[0].content: expected '5', found '6'" in caplog.messages[0]


@pytest.mark.parametrize(
    ("name", "mentions"),
    [("", "policies/grpo"), ("sft", "policies/grpo"), ("both", "episodes/both, policies/both"),
     ("policies/both", "dvc checkout")],
)  # fmt: skip
def test_refusals_name_what_there_is(name: str, mentions: str) -> None:
    with pytest.raises(ValueError, match=mentions):
        replay.main(name)


def test_episodes_from_other_rows_are_refused() -> None:
    definition.write_rows(DATA / "environments/adder", "test", [{"id": "test-0"}])
    with pytest.raises(ValueError, match="test-1"):
        replay.main("played")
