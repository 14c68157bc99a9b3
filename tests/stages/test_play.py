"""Episodes as a stage: of the environment's script and of a policy; and SFT on them."""

from dataclasses import replace

import pytest
import stage_inputs
from stage_inputs import MODEL, SEED
from tiny_checkpoints import COMPUTE
from tiny_rollouts import OPTIM

from stages import play, rows, train_sft
from stages.environments import definition
from stages.environments.definition import EnvironmentFile, EnvironmentPreset
from stages.loops import sft
from stages.models import model_tokenizer, row_policy
from stages.records import lines
from stages.records.episodes import EPISODES, Episode
from stages.rows import DATA
from stages.seeding import derive_seed

ENVIRONMENT = DATA / "environments/sums"
OUTPUT = DATA / f"episodes/new/{SEED}"
PRESET = {"starts": {"train": 2, "dev": 1, "test": 2}, "num_episodes": 3, "max_turn_tokens": 96}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, torch_settings):
    """An environment, and a policy with the embedded tokenizer."""
    monkeypatch.chdir(tmp_path)
    write_environment()
    tokenizer = model_tokenizer.train_tokenizer(["3 + 4 = 7"], 700)
    tokenizer.save_pretrained(rows.locate_policy("base", 0))
    model = row_policy.build_tiny(row_policy.TinyConfig(**MODEL["tiny"]), tokenizer, 0)
    for target in (model, tokenizer):
        target.save_pretrained(rows.locate_policy("sft", SEED))


def write_environment(**changes):
    ENVIRONMENT.mkdir(parents=True, exist_ok=True)
    preset = EnvironmentPreset.model_validate(PRESET | changes)
    file = EnvironmentFile(
        kind="own", preset=preset, own="calculator", own_digest=None, packages={}
    )
    definition.write_environment(ENVIRONMENT, file)
    for split in ("train", "test"):
        starts = [{"id": f"{split}-{i}"} for i in range(2)]
        definition.write_rows(ENVIRONMENT, split, starts)


def run(by, policy, split, *others):
    stage_inputs.configure({}, compute=COMPUTE, engine="transformers")
    words = ("--by", by, "--from", policy, "--on", "environments/sums", "--split", split, *others)
    play.main(f"play_{by}", "new", *words)
    episodes = list(lines.read_lines(OUTPUT / EPISODES, Episode))
    return episodes, stage_inputs.metrics(OUTPUT)


def test_a_script_is_played_in_tokens_and_imitated():
    episodes, metrics = run("script", "base", "train")
    assert (metrics["starts"], metrics["success"], metrics["tool_calls"]) == (2, 1.0, 1.0)
    tokenizer = row_policy.load_row_tokenizer("base", 0)
    for episode in episodes:
        call, answer = [episode.token_ids[start:end] for start, end in episode.sampled]
        assert tokenizer.decode(call).startswith("<tool>")
        assert tokenizer.decode(answer).startswith("#### ")
        ids, insertions = episode.split_tokens()
        assert ids == [*call, *answer]
        ((place, between),) = insertions
        assert place == len(call)
        assert tokenizer.decode(between) == f"\n{episode.messages[2]['content']}\n"
    preset = {"num_epochs": 2, "learning_rate": None, "num_demonstrations": None, "tasks": None}
    sections = {"compute": COMPUTE, "lora": {"rank": 0, "alpha": 16}}
    sections["sft"] = {"num_epochs": 1, "batch_size": 2, "optim": OPTIM}
    stage_inputs.configure(preset | {"learn_prompt": False}, **sections)
    words = ("--train", "sft", "--preset", "mine", "--from", "sft", "--on", "episodes/new")
    train_sft.main("train_sft", "new", *words)
    result = stage_inputs.metrics(DATA / f"policies/new/training/{SEED}")
    assert result["demonstrations"] == 2
    sampled = sum(episode.num_sampled_tokens for episode in episodes)
    assert result["trained_tokens"] == 2 * sampled
    read = sum(len(episode.prompt_ids) + len(episode.token_ids) for episode in episodes)
    assert result["work"]["policy"]["trained"] == {"positions": 2 * read, "outputs": 2 * sampled}


def test_a_demonstration_that_does_not_fit_is_refused():
    write_environment(max_turn_tokens=5)
    with pytest.raises(ValueError, match="Raise these in the environment's preset"):
        run("script", "base", "train")


def test_a_policy_plays_each_start_several_times_alike_in_each_run():
    write_environment(max_turn_tokens=24)
    episodes, metrics = run("policy", "sft", "test")
    assert [(episode.id, episode.index) for episode in episodes] == [
        (f"test-{i}", j) for i in range(2) for j in range(3)
    ]
    for episode in episodes:  # of the start alone: all seeds play the same problems
        assert episode.env_seed == derive_seed(0, "environment", 0, episode.id)
    assert metrics["generated_tokens"] == sum(episode.num_sampled_tokens for episode in episodes)
    passes = metrics["work"]["policy"]["sampled"]
    prompts = sum(len(episode.prompt_ids) for episode in episodes if episode.index == 0)
    whole = sum(len(episode.token_ids) - 1 for episode in episodes)
    assert passes == {"positions": prompts + whole, "outputs": metrics["generated_tokens"]}
    assert run("policy", "sft", "test")[0] == episodes
    more, _ = run("policy", "sft", "test", "--num_episodes", "5")
    assert [episode for episode in more if episode.index < 3] == episodes
    assert len(more) == 10
    colder, _ = run("policy", "sft", "test", "--temperature", "0.01")
    assert len({tuple(episode.token_ids) for episode in colder}) == 1


def test_distinct_successes_are_demonstrations():
    episode = run("script", "base", "train")[0][0]
    lost = replace(episode, success=False, token_ids=[*episode.token_ids, 5])
    cut = replace(episode, token_ids=[*episode.token_ids, 6], ending="tokens")  # paid before
    (row,) = sft.select_successes([episode, replace(episode, index=1), lost, cut])
    assert (row.completion_ids, row.insertions) == episode.split_tokens()
    with pytest.raises(ValueError, match="learn_prompt"):
        sft.as_document(row)
