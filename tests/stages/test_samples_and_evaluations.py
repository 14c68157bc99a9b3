"""Random numbers of samples and pools, and evaluations without rewards, answers or ends."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import stage_inputs
from stage_inputs import EVALUATION, SEED, SPLIT

from stages.records import lines
from stages.records.pools import Completion, ProblemResult, Score, ScoredPrompt
from stages.rows import DATA, PROMPTS

SAMPLES, POOL = DATA / f"samples/sft/{SEED}", DATA / f"pools/new/{SEED}"
EVALUATIONS = DATA / "evaluations/sft"
OUTPUT = EVALUATIONS / str(SEED)
pytestmark = pytest.mark.usefixtures("stage_world")


def sample(**sections):
    stage_inputs.run_stage("sample", ["sft"], **sections)
    return {path.stem: list(lines.read_lines(path, Completion)) for path in SAMPLES.glob("*.jsonl")
            if path.stem != "temperatures"}  # fmt: skip


def test_samples_at_each_temperature_have_the_same_random_numbers_and_change_no_others():
    drawn = sample()
    seeds = {row.id: row.seed for row in drawn["test"]}
    assert {row.id: row.seed for row in drawn["test_at_0.5"]} == seeds
    fewer = sample(temperatures={"tried": [], "num_samples": 1})
    assert fewer == {name: rows for name, rows in drawn.items() if "_at_" not in name}


def test_a_pool_has_other_draws_of_the_dev_problems_and_needs_a_section_of_its_split():
    words = ["new", "--from", "sft", "--split", "preference"]
    stage_inputs.run_stage("pool", words)
    heldout, dev = list(lines.read_lines(POOL / "heldout.jsonl", Completion)), sample()["dev"]
    assert {row.id for row in heldout} == {row.id for row in dev}
    assert {row.seed for row in heldout}.isdisjoint(row.seed for row in dev)
    with pytest.raises(ValueError, match="preference"):
        stage_inputs.run_stage("pool", words, sampling={"heldout": SPLIT, "dev": SPLIT})


def evaluate(**settings):
    sections = {"evaluation": EVALUATION | settings}
    stage_inputs.run_stage("evaluate", ["sft"], **sections)
    return stage_inputs.metrics(OUTPUT)


def read(name, kind):
    return list(lines.read_lines(OUTPUT / f"{name}.jsonl", kind))


def edit(path, change):
    """Rewrite a file of samples."""
    lines.write_lines(path, change(list(lines.read_lines(path, Completion))))


def test_without_reward_models_the_other_votes_are_estimated():
    for name in ("scorer", "steps"):
        shutil.rmtree(DATA / "rewards" / name)
    evaluate()
    (row, *_) = read("per_problem", ProblemResult)
    assert set(row.accuracy_at) == {
        "pass", "majority", "best_of/longest", "best_of/shortest", "best_of/mean_logprob",
        "weighted/mean_logprob", "best_of/format", "weighted/format",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["test", "test_greedy", "dev"])
def test_many_completions_cut_at_the_limit_are_no_result(name, caplog):
    def cut(rows):
        number = len(rows) // 4 + 1
        return [replace(row, finish_reason="length") for row in rows[:number]] + rows[number:]

    edit(SAMPLES / f"{name}.jsonl", cut)
    metrics = evaluate(max_cut_share=0.25)
    assert metrics[f"cut/{name}"] > 0.25
    assert "mean_accuracy" not in metrics
    assert f"sampling.{name.partition('_')[0]}.max_new_tokens" in caplog.text
    assert read("per_problem", ProblemResult) == read("scores", Score) == []
    assert (evaluate(max_cut_share=0.9)["truncation_rate"] > 0) == (name == "test")


def test_completions_that_repeat_themselves_are_counted_apart_and_stop_nothing():
    def repeat(rows):
        loop = replace(rows[0], finish_reason="length", completion_ids=[5, *[6, 7] * 8])
        return [loop, replace(rows[1], finish_reason="length"), *rows[2:]]

    edit(SAMPLES / "test_greedy.jsonl", repeat)
    metrics = evaluate(max_cut_share=0.25)  # one of four
    assert metrics["in_loop/test_greedy"] == pytest.approx(1 / 4)
    assert not {"in_loop/test", "in_loop/dev"} & metrics.keys()
    assert evaluate(max_cut_share=0.24)["cut/test_greedy"] == pytest.approx(1 / 4)


def test_without_gold_answers_there_is_what_rewards_score():
    for split in ("test", "dev"):
        prompts = stage_inputs.make_prompts(split)
        path = PROMPTS / f"{split}.jsonl"
        lines.write_lines(path, [replace(prompt, answer=None) for prompt in prompts])
    metrics = evaluate()
    assert set(metrics) == {"num_problems", "reward/scorer", "reward/steps", "mean_tokens",
                            "truncation_rate", "generated_tokens", "work"}  # fmt: skip
    rows, scores = read("per_problem", ScoredPrompt), read("scores", Score)
    assert rows[0].scores["scorer"] == [item.scores["scorer"] for item in scores[:4]]
    mean = np.mean([item.scores["scorer"] for item in scores])
    assert metrics["reward/scorer"] == pytest.approx(mean, abs=1e-6)
