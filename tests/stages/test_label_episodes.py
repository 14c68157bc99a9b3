"""Pairs of episodes with one start, by their rewards."""

import pytest
import stage_inputs
from stage_inputs import SEED

from stages import label_episodes
from stages.records import lines
from stages.records.episodes import EPISODES, Episode
from stages.records.preferences import read_pairs
from stages.rows import DATA

SOURCE, OUTPUT = DATA / f"episodes/games/{SEED}", DATA / f"pairs/new/{SEED}"


def make_episode(index, reward, start="a", ending="done"):
    """Two turns of the policy, one token each, and one of the environment between them."""
    return Episode(
        id=start, index=index, env_seed=0, messages=[], num_start_messages=0, tools=None,
        prompt_ids=[1], token_ids=[10 + index, 2, 3], sampled=[(0, 1), (2, 3)],
        rewards=[0.0, reward], reward=reward, success=reward >= 1, ending=ending, error=None,
    )  # fmt: skip


def run(episodes, max_pairs=4):
    lines.write_lines(SOURCE / EPISODES, episodes)
    stage_inputs.configure({"max_pairs_per_start": max_pairs})
    words = ("--by", "episodes", "--preset", "mine", "--from", "sft", "--on", "episodes/games")
    label_episodes.main("label_episodes", "new", *words)
    return read_pairs(OUTPUT, "train")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_best_stands_against_the_worst_and_the_second_against_the_second():
    rewards = [0.5, 1.0, 0.0, 0.25, 0.5]
    others = [make_episode(0, 1.0, start="b"), make_episode(1, 1.0, start="b")]
    episodes = [make_episode(i, reward) for i, reward in enumerate(rewards)]
    broken = make_episode(5, 9.0, ending="environment_error")
    pairs = run([*episodes, broken, *others])
    assert [(pair.chosen_ids, pair.rejected_ids) for pair in pairs] == [
        ([11, 3], [12, 3]), ([10, 3], [13, 3]),
    ]  # fmt: skip
    assert {pair.id for pair in pairs} == {"a"}
    assert pairs[0].chosen_insertions == [[1, [2]]]
    assert len(run(episodes, max_pairs=1)) == 1
    assert stage_inputs.metrics(OUTPUT) == {"starts": 1, "pairs": 1}


def test_an_episode_that_was_cut_or_could_not_be_read_is_never_preferred():
    endings = ["tokens", "parse_error", "turns", "done", "tool_calls"]
    rewards = [0.9, 0.8, 0.7, 0.4, 0.1]
    episodes = [
        make_episode(i, reward, ending=ending)
        for i, (reward, ending) in enumerate(zip(rewards, endings, strict=True))
    ]
    # Of the two finished ones the better stands against the worst; the second has no second worst.
    assert [(pair.chosen_ids, pair.rejected_ids) for pair in run(episodes)] == [([12, 3], [14, 3])]
    with pytest.raises(ValueError, match="whole episode that was paid more than another"):
        run(episodes[:2] + episodes[-1:])


def test_rewards_that_are_all_the_same_make_no_pairs():
    with pytest.raises(ValueError, match="play more episodes of a start"):
        run([make_episode(0, 1.0), make_episode(1, 1.0)])
