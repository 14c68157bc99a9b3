"""Samples and pools, and evaluations by hand of samples that are half right."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import stage_inputs
from stage_inputs import EVALUATION, SEED, SEEDS, SPLIT
from tiny_checkpoints import CPU, compute

from stages.algorithms.selection.best_of_n import best_of_n
from stages.models import policy, process_head
from stages.models.batch import Group
from stages.models.scalar_head import load_ensemble
from stages.records import lines
from stages.records.pools import Completion, ProblemResult, Score, ScoredPrompt
from stages.records.problems import Prompt
from stages.records.temperatures import SampledFile, TemperatureResult
from stages.rewards import reward_file
from stages.rows import DATA, PROMPTS, locate_policy

SAMPLES, POOL = DATA / f"samples/sft/{SEED}", DATA / f"pools/new/{SEED}"
EVALUATIONS = DATA / "evaluations/sft"
OUTPUT = EVALUATIONS / str(SEED)
pytestmark = pytest.mark.usefixtures("stage_world")


def sample(**sections):
    stage_inputs.run_stage("sample", ["sft"], **sections)
    return {path.stem: list(lines.read_lines(path, Completion)) for path in SAMPLES.glob("*.jsonl")
            if path.stem != "temperatures"}  # fmt: skip


def test_each_dev_and_test_problem_has_samples_a_greedy_one_and_those_of_each_temperature():
    drawn = sample()
    # 3 dev problems, 4 test problems
    assert {name: len(rows) for name, rows in drawn.items()} == {
        "dev": 3 * 1, "dev_greedy": 3, "dev_at_0.5": 3 * 2,
        "test": 4 * 3, "test_greedy": 4, "test_at_0.5": 4 * 2,
    }  # fmt: skip
    files = lines.read_lines(SAMPLES / "temperatures.jsonl", SampledFile)
    assert {row.name: (row.split, row.temperature) for row in files} == {
        f"{split}{end}": (split, temperature)
        for split in ("dev", "test")
        for end, temperature in (("", 1.0), ("_greedy", 0.0), ("_at_0.5", 0.5))
    }
    metrics = stage_inputs.metrics(SAMPLES)
    num_tokens = sum(len(row.completion_ids) for rows in drawn.values() for row in rows)
    assert metrics["generated_tokens"] == num_tokens
    assert metrics["work"]["policy"]["sampled"]["outputs"] == num_tokens
    assert metrics["test"]["problems"] == 4
    # The first samples at each temperature have the same random numbers.
    seeds = {row.id: row.seed for row in drawn["test"]}
    assert {row.id: row.seed for row in drawn["test_at_0.5"]} == seeds
    fewer = sample(temperatures={"tried": [], "num_samples": 1})
    assert fewer == {name: rows for name, rows in drawn.items() if "_at_" not in name}


def test_a_pool_holds_its_split_and_other_draws_of_the_dev_problems():
    words = ["new", "--from", "sft", "--split", "preference"]
    stage_inputs.run_stage("pool", words)
    content = stage_inputs.read_json(POOL.parent / "pool.json")
    assert content == {"split": "preference", "policy": "sft"}
    train, heldout = (list(lines.read_lines(POOL / f"{side}.jsonl", Completion))
                      for side in ("train", "heldout"))  # fmt: skip
    assert (len(train), len(heldout)) == (4 * 3, 3 * 3)
    dev = sample()["dev"]
    assert {row.id for row in heldout} == {row.id for row in dev}
    assert {row.seed for row in heldout}.isdisjoint(row.seed for row in dev)
    with pytest.raises(ValueError, match="preference"):
        stage_inputs.run_stage("pool", words, sampling={"heldout": SPLIT, "dev": SPLIT})


def write_process_scorer():
    """A process model of each seed with a random head, whose aggregations differ."""
    (DATA / "rewards/steps").mkdir()
    reward_file.write_reward(DATA / "rewards/steps", reward_file.model_reward_file("process"))
    for seed in SEEDS:
        model = process_head.init_process_model(
            locate_policy("sft", seed), 2, compute(), CPU, separator="\n"
        )
        for parameter in process_head.get_head(model).parameters():
            parameter.data.normal_()
        folder = DATA / f"rewards/steps/{seed}"
        policy.save_model(model, stage_inputs.make_tokenizer(), folder / "model")
        content = {"best_of": "min", "weighted": "last"}
        stage_inputs.write_json(folder / "aggregation.json", content)


def evaluate(seeds=(SEED,), **settings):
    sections = {"evaluation": EVALUATION | settings}
    stage_inputs.run_stage("evaluate", ["sft"], seeds=seeds, **sections)
    return stage_inputs.metrics(OUTPUT)


def read(name, kind, seed=SEED):
    return list(lines.read_lines(EVALUATIONS / f"{seed}/{name}.jsonl", kind))


def edit(path, change):
    """Rewrite a file of samples."""
    lines.write_lines(path, change(list(lines.read_lines(path, Completion))))


def make_wrong(row):
    return replace(row, completion="#### 99")


def test_each_seed_is_scored_by_the_rewards_of_its_own():
    write_process_scorer()
    evaluate(SEEDS)
    for seed in SEEDS:
        scores = read("scores", Score, seed)
        assert len(scores) == 4 * 4
        assert set(scores[0].scores) == {"scorer"}
        assert set(scores[0].steps) == {"steps"}
        row = list(lines.read_lines(DATA / f"samples/sft/{seed}/test.jsonl", Completion))[5]
        path = reward_file.model_path(DATA / "rewards/scorer", seed)
        ensemble = load_ensemble(path, reward_file.MEAN, compute(), CPU)
        prompt = stage_inputs.make_prompts("test")[1]
        group = Group(prompt_ids=prompt.prompt_ids, completions=[row.completion_ids],
                      indices=range(1))  # fmt: skip
        expected = float(ensemble.score_groups([group]).values[0])
        assert scores[5].scores["scorer"] == pytest.approx(expected, abs=2e-5)


def test_the_estimates_are_those_of_the_samples():
    write_process_scorer()
    # Of dev problems all completions are wrong but the first problem's: 2 of 12 are right.
    edit(SAMPLES / "dev.jsonl", lambda rows: [*rows[:4], *map(make_wrong, rows[4:])])
    edit(SAMPLES / "test_greedy.jsonl", lambda rows: [*map(make_wrong, rows[:3]), *rows[3:]])
    metrics = evaluate(ks=[1])
    assert (metrics["num_problems"], metrics["num_samples"]) == (4, 4)
    assert metrics["mean_accuracy"] == metrics["pass/1"] == 0.5
    assert metrics["dev_accuracy"] == pytest.approx(2 / 12, abs=1e-6)
    # greedy is the answer of each place in turn: right, wrong, right, wrong; three were edited
    assert metrics["greedy_accuracy"] == 0.0
    (row, *_), scores = read("per_problem", ProblemResult), read("scores", Score)
    samples = list(lines.read_lines(SAMPLES / "test.jsonl", Completion))
    answer = stage_inputs.make_prompts("test")[0].answer
    right = np.array([float(item.completion.endswith(f"#### {answer}")) for item in samples[:4]])
    assert (row.num_correct, right.sum()) == (2, 2)
    for name, values in (
        ("best_of/scorer", [item.scores["scorer"] for item in scores[:4]]),
        ("best_of/steps", [min(item.steps["steps"]) for item in scores[:4]]),
        ("best_of/mean_logprob", [item.logprob_sum / len(item.completion_ids)
                                  for item in samples[:4]]),
    ):  # fmt: skip
        by_hand = best_of_n(np.array(values), right, n=1)
        assert row.accuracy_at[name]["1"] == pytest.approx(by_hand)
    assert {"weighted/steps", "weighted/scorer", "best_of/longest", "weighted/format"} <= set(
        row.accuracy_at
    )
    assert set(metrics["work"]) == {"scorer", "steps"}
    assert metrics["work"]["scorer"]["read"]["positions"] > 0
    by_file = {}
    for result in read("temperatures", TemperatureResult):
        by_file.setdefault((result.file, result.temperature), []).append(result)
        assert result.strict <= result.accuracy <= result.lenient
    numbers = {key: [result.accuracy for result in rows] for key, rows in by_file.items()}
    assert numbers == {
        ("dev", 1.0): [0.5, 0.0, 0.0], ("dev_greedy", 0.0): [1.0, 0.0, 1.0],
        ("test", 1.0): [0.5] * 4, ("test_greedy", 0.0): [0.0] * 4,
    }  # fmt: skip


def test_without_reward_models_the_other_votes_are_estimated():
    shutil.rmtree(DATA / "rewards/scorer")
    evaluate()
    (row, *_) = read("per_problem", ProblemResult)
    assert set(row.accuracy_at) == {
        "pass", "majority", "best_of/longest", "best_of/shortest", "best_of/mean_logprob",
        "weighted/mean_logprob", "best_of/format", "weighted/format",
    }  # fmt: skip


def test_more_samples_than_a_quarter_of_the_pool_are_refused():
    with pytest.raises(ValueError, match=r"4 samples.*found 2"):
        evaluate(ks=[1, 2])
    assert not EVALUATIONS.exists()


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
    assert set(metrics) == {"num_problems", "reward/scorer", "mean_tokens", "truncation_rate",
                            "generated_tokens", "work"}  # fmt: skip
    rows, scores = read("per_problem", ScoredPrompt), read("scores", Score)
    assert rows[0].scores["scorer"] == [item.scores["scorer"] for item in scores[:4]]
    mean = np.mean([item.scores["scorer"] for item in scores])
    assert metrics["reward/scorer"] == pytest.approx(mean, abs=1e-6)
    assert {prompt.answer for prompt in lines.read_lines(PROMPTS / "test.jsonl", Prompt)} == {None}
