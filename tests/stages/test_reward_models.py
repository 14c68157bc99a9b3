"""Rewards as stages: ensembles, the folder of a process model, models of rules, refusals."""

import pytest
import stage_inputs
import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file
from stage_inputs import OPTIM, PRESETS, SEED, SEEDS, end, read_files
from tiny_checkpoints import CPU, compute

from stages import rows
from stages.models import process_head
from stages.models.process_head import TokenizedSolution
from stages.records import lines
from stages.records.steps import StepLabels
from stages.rewards import pool_scores, reward_file
from stages.rewards.pool_scores import Aggregation
from stages.rows import DATA

REWARD = DATA / "rewards/new"
OUTPUT = REWARD / str(SEED)
PAIRS, SOLUTIONS = DATA / f"pairs/old/{SEED}", DATA / f"steps/old/{SEED}"
PREFERENCE = PRESETS["bradley_terry"] | {
    "members": 1, "num_epochs": 1, "batch_size": 4, "optim": OPTIM,
    "quality": {"num_bins": 4, "length_tolerance": 2, "length_edges": [0]},
}  # fmt: skip
PROCESS = PRESETS["process"] | {"num_epochs": 30, "batch_size": 2, "optim": OPTIM}
pytestmark = pytest.mark.usefixtures("stage_world")


def train(kind, on, preset):
    """The metrics of its steps, and metrics.json."""
    stage_inputs.run_stage(f"reward_{kind}", stage_inputs.make_words(f"reward_{kind}", on), preset)
    journal = DATA / f"journals/reward/new/journal-seed-{SEED}.jsonl"
    return stage_inputs.read_steps(journal), stage_inputs.metrics(OUTPUT)


def load_weights(name="model"):
    return load_file(OUTPUT / name / "model.safetensors")


def test_the_first_member_is_the_model_alone_and_the_next_differs_in_head_and_order():
    alone, _ = train("preference", "pairs/old", PREFERENCE)
    first = load_weights()
    steps, metrics = train("preference", "pairs/old", PREFERENCE | {"members": 2})
    again, second = load_weights("model/0"), load_weights("model/1")
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["score.weight"], second["score.weight"])
    tokens = [step["tokens/trained"] for step in steps]
    assert tokens[: len(alone)] == [step["tokens/trained"] for step in alone]
    assert metrics["trained_tokens"] == sum(tokens)


def test_pairs_of_no_seed_serve_every_seed_and_none_need_be_held_out():
    PAIRS.rename(DATA / "pairs/people")
    lines.write_lines(DATA / "pairs/people/heldout.jsonl", [])
    _, metrics = train("preference", "pairs/people", PREFERENCE | {"members": 2})
    assert (metrics["pairs"], metrics["heldout"]) == (5, {"pairs": 0})


def test_a_process_model_of_one_seed_scores_by_its_folder_alone():
    _, metrics = train("process", "steps/old", PROCESS)
    # Each aggregation tells right from wrong here, so the first of them is taken.
    accuracy = metrics["accuracy"]
    assert accuracy["best_of"] == accuracy["weighted"] == dict.fromkeys(accuracy["best_of"], 1.0)
    assert pool_scores.read_aggregation(OUTPUT) == Aggregation(best_of="last", weighted="last")
    scorer = process_head.load_process_scorer(reward_file.model_path(REWARD, SEED), compute(), CPU)
    row = read_solutions("train")[0]
    steps = scorer.split(end("".join(row.steps)))
    (scores,) = scorer([TokenizedSolution(prompt_ids=row.prompt_ids, steps=steps)])
    assert len(scores) == 2
    assert min(scores) > 0.5


def read_solutions(side):
    return list(lines.read_lines(SOLUTIONS / f"{side}.jsonl", StepLabels))


def run_rule(preset, on, start):
    words = stage_inputs.make_words("reward_rule", on, start)
    stage_inputs.run_stage("reward_rule", words, PRESETS[preset], SEEDS)
    return reward_file.read_reward(REWARD)


def test_a_rule_has_a_copy_of_the_model_that_it_asks_for_each_seed():
    assert run_rule("judge_wins", "prompts", "sft").model == "policy"
    for seed in SEEDS:
        copied = read_files(reward_file.model_path(REWARD, seed))
        assert copied == read_files(rows.locate_policy("sft", seed))
    other = DATA / "rewards/scorer"
    minimum = TypeAdapter(reward_file.Aggregate).validate_python("min")
    reward_file.write_reward(other, reward_file.model_reward_file("preference", minimum))
    result = run_rule("rule_model", "rewards/scorer", "base")
    assert (result.kind, result.model, result.aggregate) == ("rule", "reward", minimum)
    for seed in SEEDS:
        copied = read_files(reward_file.model_path(REWARD, seed))
        assert copied == read_files(reward_file.model_path(other, seed))
