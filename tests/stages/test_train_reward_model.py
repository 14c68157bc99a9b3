"""Members of an ensemble trained, assembled and scored with, on a random checkpoint."""

import copy
import json
from pathlib import Path

import presets
import pytest
import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file
from tiny_checkpoints import COMPUTE, CPU, compute, load
from tiny_rollouts import OPTIM, make_pairs
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from stages import assemble_ensembles, train_reward_model
from stages.loops import reward
from stages.models import ensemble
from stages.models.aggregate import Minimum
from stages.models.batch import collate
from stages.records import lines

PAIRS = make_pairs(12)
ENTRY = {
    "start": "train_sft/sft/policy",
    "pairs": "label_preferences/sft",
    "heldout": "label_preferences/other",
    "ensemble": "sft",
}
PARAMS = {
    "seed": 0,
    "compute": COMPUTE,
    "lora": {"rank": 0, "alpha": 16},
    "train_reward_model": {
        "num_epochs": 1,
        "batch_size": 4,
        "centring": 0.01,
        "margin": 0.0,
        "optim": OPTIM,
    },
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A pipeline up to the pairs; torch is left as it was."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    monkeypatch.chdir(tmp_path)
    start = train_reward_model.DATA / ENTRY["start"]
    load("llama").save_pretrained(start)
    vocab = {"<pad>": 0, "</s>": 1, **{f"w{i}": i for i in range(2, 32)}}
    words = Tokenizer(WordLevel(vocab, unk_token="<pad>"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>"
    ).save_pretrained(start)
    lines.write(train_reward_model.DATA / ENTRY["pairs"] / "train.jsonl", PAIRS[:8])
    lines.write(train_reward_model.DATA / ENTRY["heldout"] / "heldout.jsonl", PAIRS[8:])
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def write_params(members=(0,)):
    plan = copy.deepcopy(presets.CONTENT["recipes"]["comparison"])
    plan["train_reward_model"] = {
        f"sft-{number}": ENTRY | {"member": number, "flip": 0} for number in members
    }
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(PARAMS | {"plan": plan}, file)


def train(name, member=0, flip=0):
    """As `python -m` calls it: all words are text."""
    words = (ENTRY["start"], ENTRY["pairs"], ENTRY["heldout"], str(member), str(flip))
    train_reward_model.main(name, *words)
    output = train_reward_model.OUTPUT / name
    journal = (output / "run/journal.jsonl").read_text(encoding="utf-8").splitlines()
    return (
        load_file(output / "reward_model/model.safetensors"),
        [json.loads(line)["metrics"] for line in journal],
        json.loads((output / "metrics.json").read_text(encoding="utf-8")),
    )


def test_members_differ_in_head_and_order_and_a_member_is_its_number():
    write_params()
    (first, steps, metrics), (again, _, _), (second, others, _) = (
        train("a"),
        train("b"),
        train("c", member=1),
    )
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["score.weight"], second["score.weight"])
    assert [step["tokens/trained"] for step in steps] != [
        step["tokens/trained"] for step in others
    ], "the pairs are in another order"
    assert metrics["pairs"] == 8
    assert metrics["heldout_pairs"] == 4
    assert metrics["trained_tokens"] == sum(step["tokens/trained"] for step in steps)


def test_flipped_labels_are_the_same_for_every_member_and_only_those_of_training(monkeypatch):
    write_params()
    seen = []
    original = reward.train

    def spy(model, pairs, *arguments):
        seen.append([pair.probability for pair in pairs])
        return original(model, pairs, *arguments)

    monkeypatch.setattr(reward, "train", spy)
    _, _, metrics = train("a", member=0, flip=25)
    train("b", member=1, flip=25)
    train("c", member=0, flip=50)
    assert metrics["flipped_percent"] == 25
    assert [sum(probability == 0.0 for probability in row) for row in seen] == [2, 2, 4]
    assert seen[0] == seen[1]
    assert all(more <= less for less, more in zip(seen[0], seen[2], strict=True))


def test_what_was_assembled_scores_as_the_members_do():
    write_params(members=(0, 1, 2))
    for number in range(3):
        train(f"sft-{number}", member=number)
    assemble_ensembles.main()
    paths = [train_reward_model.OUTPUT / f"sft-{number}/reward_model" for number in range(3)]
    minimum = Minimum(kind="min")
    batch = collate(reward.pair_groups(PAIRS, range(12)), 64, 0, CPU)
    alone = torch.stack(
        [ensemble.load(path, minimum, compute(), CPU)(batch).values for path in paths]
    )
    together = ensemble.load(assemble_ensembles.OUTPUT / "ensembles/sft", minimum, compute(), CPU)(
        batch
    )
    assert torch.equal(together.values, alone.amin(0))
    assert together.disagreement.mean() > 0
