"""A reward model and an ensemble of them, on a random checkpoint."""

import dataclasses
import json

import pytest
import stage_inputs
import torch
from collated import collate
from safetensors.torch import load_file
from stage_inputs import SEED
from tiny_checkpoints import COMPUTE, CPU, compute
from tiny_rollouts import OPTIM, make_pairs

from stages import reward_model
from stages.loops import reward
from stages.models import scalar_head
from stages.records import lines
from stages.rewards import reward_file
from stages.rows import DATA

PAIRS = make_pairs(12)
SOURCE = DATA / f"pairs/old/{SEED}"
OWN = DATA / f"rewards/new/{SEED}"
WORDS = ("--by", "preference", "--preset", "mine", "--from", "sft", "--on", "pairs/old")
PRESET = {
    "num_epochs": 1,
    "batch_size": 4,
    "centring": 0.01,
    "margin": 0.0,
    "members": 1,
    "aggregate": {"kind": "mean"},
    "flip_percent": 0,
    "optim": OPTIM,
    "quality": {
        "num_bins": 4,
        "length_tolerance": 2,
        "length_edges": [-3, 0],
    },
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, torch_settings):
    """A pipeline up to the pairs."""
    monkeypatch.chdir(tmp_path)
    stage_inputs.write_policy()
    lines.write_lines(SOURCE / "train.jsonl", PAIRS[:8])
    lines.write_lines(SOURCE / "heldout.jsonl", PAIRS[8:])


def train(**changes):
    stage_inputs.configure(
        PRESET | changes,
        compute=COMPUTE,
        model=stage_inputs.MODEL,
        lora={"rank": 0, "alpha": 16},
        evaluation=stage_inputs.EVALUATION,
    )
    reward_model.main("reward_preference", "new", *WORDS)
    journal = DATA / f"journals/reward/new/journal-seed-{SEED}.jsonl"
    steps = [json.loads(line)["metrics"] for line in journal.read_text().splitlines()]
    return steps, stage_inputs.metrics(OWN)


def test_a_reward_model_is_made_where_no_pair_is_held_out():
    lines.write_lines(SOURCE / "heldout.jsonl", [])
    _, metrics = train(members=2)
    assert metrics["heldout"] == {"pairs": 0}
    assert (OWN / "model/1/model.safetensors").is_file()


def test_members_differ_in_head_and_order_and_the_first_is_the_model_alone():
    alone, metrics = train()
    first = load_file(OWN / "model/model.safetensors")
    assert metrics["pairs"] == 8
    assert metrics["heldout"]["pairs"] == 4
    assert metrics["trained_tokens"] == sum(step["tokens/trained"] for step in alone)
    steps, metrics = train(members=2)
    again, second = (load_file(OWN / f"model/{n}/model.safetensors") for n in (0, 1))
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["score.weight"], second["score.weight"])
    tokens = [step["tokens/trained"] for step in steps]
    assert tokens[:2] == [step["tokens/trained"] for step in alone]
    assert tokens[2:] != tokens[:2], "the pairs are in another order"
    assert metrics["trained_tokens"] == sum(tokens)
    assert metrics["work"]["reward"]["trained"]["positions"] > 0


def test_flipped_labels_are_the_same_for_every_member_and_only_those_of_training(monkeypatch):
    seen = []
    original = reward.train

    def spy(model, pairs, *arguments):
        seen.append([pair.probability for pair in pairs])
        return original(model, pairs, *arguments)

    monkeypatch.setattr(reward, "train", spy)
    train(members=2, flip_percent=25)
    train(flip_percent=50)
    assert [sum(probability == 0.0 for probability in row) for row in seen] == [2, 2, 4]
    assert seen[0] == seen[1]
    assert all(more <= less for less, more in zip(seen[0], seen[2], strict=True))


def test_an_ensemble_scores_as_its_members_do_by_the_rule_in_its_reward_json():
    train(members=3, aggregate={"kind": "min"})
    reward_of_row = reward_file.read_reward(DATA / "rewards/new")
    assert (reward_of_row.kind, reward_of_row.model, reward_of_row.aggregate.kind) == (
        "preference",
        "reward",
        "min",
    )
    assert reward_of_row.composition.kinds() == {"scorer"}
    path = reward_file.model_path(DATA / "rewards/new", SEED)
    batch = collate(reward.make_pair_groups(PAIRS, range(12)), 64, 0, CPU)
    alone = [
        scalar_head.load_ensemble(path / str(n), reward_of_row.aggregate, compute(), CPU)(
            batch
        ).values
        for n in range(3)
    ]
    together = scalar_head.load_ensemble(path, reward_of_row.aggregate, compute(), CPU)(batch)
    assert torch.equal(together.values, torch.stack(alone).amin(0))
    assert together.disagreement.mean() > 0


def test_the_quality_is_that_on_the_heldout_pairs():
    soft = [dataclasses.replace(pair, probability=0.9) for pair in PAIRS[8:]]
    lines.write_lines(SOURCE / "heldout.jsonl", soft)
    quality = train()[1]["heldout"]
    assert (quality["pairs"], quality["problems"], quality["undecided_pairs"]) == (4, 4, 0)
    assert quality["label_entropy"]["value"] == pytest.approx(0.325083, abs=1e-6)
    assert quality["negative_log_likelihood"]["value"] >= quality["label_entropy"]["value"]
    # Chosen completions of the game are one token longer.
    by_length = quality["accuracy_by_length_difference"]
    assert by_length["<= -4"] is by_length["-3 .. -1"] is None
    assert by_length[">= 0"] == quality["length_matched_accuracy"]
    assert by_length[">= 0"] == quality["accuracy"] | {"pairs": 4}


def test_pairs_of_no_seed_serve_every_seed():
    """People's pairs are the same for all."""
    SOURCE.rename(DATA / "pairs/people")
    (DATA / "pairs/old").rmdir()
    (DATA / "pairs/people").rename(DATA / "pairs/old")
    assert train()[1]["pairs"] == 8
