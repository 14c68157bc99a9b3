"""How long the texts of a stage may be, by the rows that its input was made of."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from stages.config import PRESETS_PATH, read_yaml
from stages.planning.stage import (
    Data,
    Plan,
    Stage,
    count_completions,
    count_starts,
    find_environment,
    is_remote,
    list_scorers,
    max_lengths,
)
from stages.records.problems import Demonstration

ROOT = Path(__file__).parents[3]
PRESETS = read_yaml(ROOT / PRESETS_PATH) | {"people": {"max_tokens": 70}}
SHOWN = Demonstration(
    id="a", task="solve", prompt="", prompt_ids=[5] * 30, completion="", completion_ids=[6] * 20
)
DATA = Data(
    prompts={}, demonstrations=1, prompt=30.0, completion=20.0, completion_lines=3.0,
    longest=(30, 20), example=SHOWN,
)  # fmt: skip
LIMITS = {"train": 100, "preference": 40, "heldout": 50, "dev": 60, "test": 45}
CONTENT = {
    "sampling": {
        split: {"max_new_tokens": limit, "num_samples": limit // 10}
        for split, limit in LIMITS.items()
    }
}
ROWS = {
    "pools": {
        "sft": {"from": "sft", "split": "preference"},
        "own": {"from": "sft", "split": "train"},
    },
    "pairs": {
        "verifier": {"by": "verifier", "preset": "verifier", "on": "pools/own"},
        "revised": {"by": "revision", "preset": "revision", "on": "pools/sft"},
        "people": {"by": "people", "preset": "people", "on": "raw/people.jsonl"},
    },
    "steps": {"sft": {"by": "completions", "preset": "completions", "on": "pools/sft"}},
    "environments": {
        "game": {"by": "own", "preset": "game", "on": "own/guess_number"},
        "problems": {"by": "own", "preset": "problems", "on": "own/guess_number"},
    },
    "episodes": {"demos": {"by": "script", "on": "environments/game", "split": "train"}},
}
PRESETS["game"] = {**PRESETS["game"], "max_tokens": 90, "num_episodes": 5}
PRESETS["revision"] = {**PRESETS["revision"], "max_new_tokens": 90, "max_prompt_tokens": 150}
PLAN = Plan(content=CONTENT, presets=PRESETS, rows=ROWS, data=DATA)


def stage(entry_point, on="", **config):
    words = {"on": on, "split": "train"}
    return Stage(name="x@y", entry_point=entry_point, words=words, config=SimpleNamespace(**config))


@pytest.mark.parametrize(
    ("entry_point", "on", "expected"),
    [
        ("train_sft", "demonstrations", (30, 20)),
        ("train_sft", "pairs/revised", (30, 90)),
        ("pool", "", (30, 100)),
        ("sample", "", (30, 60)),
        ("reward_outcome", "pools/sft", (30, 50)),  # its held-out half may be longer
        ("reward_outcome", "pools/own", (30, 100)),
        ("train_dpo", "pairs/verifier", (30, 100)),
        ("train_dpo", "pairs/revised", (30, 90)),
        ("reward_preference", "pairs/people", (30, 40)),  # 70 together
        ("reward_process", "steps/sft", (30, 50)),
        ("steps_completions", "pools/sft", (30, 50)),
        ("train_grpo", "environments/game", (30, 60)),  # 90 together
        ("play_policy", "environments/game", (30, 60)),
        ("train_sft", "episodes/demos", (30, 60)),
    ],
)
def test_texts_are_as_long_as_those_that_made_them(entry_point, on, expected):
    assert max_lengths(stage(entry_point, on), PLAN) == expected


def test_a_method_of_reinforcement_learning_has_a_limit_of_its_own():
    assert max_lengths(stage("train_grpo", grpo=SimpleNamespace(max_new_tokens=7)), PLAN) == (30, 7)
    assert max_lengths(stage("train_ppo", ppo=SimpleNamespace(max_new_tokens=8)), PLAN) == (30, 8)


def test_a_revision_and_a_judge_read_messages_of_their_own():
    revision = SimpleNamespace(max_prompt_tokens=150, max_new_tokens=90)
    result = max_lengths(stage("label_revision", "pools/sft", preset=revision), PLAN)
    assert result == (150, 90)
    judge = SimpleNamespace(kind="policy", max_prompt_tokens=200)
    silent = SimpleNamespace(judge=judge, reasoning=None)
    thinking = SimpleNamespace(judge=judge, reasoning=SimpleNamespace(max_new_tokens=64))
    assert max_lengths(stage("label_judge", "pools/sft", preset=silent), PLAN) == (200, 1)
    assert max_lengths(stage("label_judge", "pools/sft", preset=thinking), PLAN) == (200, 65)
    assert not is_remote(stage("label_judge", preset=silent))


def test_as_many_completions_are_read_side_by_side_as_the_pool_has():
    assert count_completions(stage("reward_outcome", "pools/sft"), PLAN) == 4
    assert count_completions(stage("reward_outcome", "pools/own"), PLAN) == 10


def test_an_environment_has_starts_of_its_own_or_the_problems():
    game = find_environment(stage("train_grpo", "environments/game"), PLAN)
    assert count_starts(game, "train", PLAN) == 512
    prompts = replace(PLAN, data=replace(DATA, prompts={"train": 7}))
    problems = find_environment(stage("train_grpo", "environments/problems"), PLAN)
    assert count_starts(problems, "train", prompts) == 7
    assert count_completions(stage("play_policy", "environments/game"), PLAN) == 5
    assert list_scorers("environments/game", PLAN) == ()
    assert find_environment(stage("train_sft", "demonstrations"), PLAN) is None
