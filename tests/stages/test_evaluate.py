import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import studied_run
from studied_run import DATA, SEEDS, write_json
from tiny_checkpoints import COMPUTE, CPU, compute

from stages import evaluate
from stages.algorithms.selection.best_of_n import best_of_n
from stages.models.batch import Group
from stages.models.scalar_head import load_ensemble
from stages.records import lines
from stages.records.pools import Completion, ProblemResult, Score, ScoredPrompt
from stages.records.problems import Prompt
from stages.records.temperatures import TemperatureResult
from stages.rewards import reward_file
from stages.rows import PROMPTS

EVALUATION = {"ks": [1, 2], "num_draws": 400, "num_bootstrap": 200, "confidence": 0.95,
              "decimals": 5, "max_cut_share": 1.0}  # fmt: skip
OUTPUT = DATA / "evaluations" / "sft"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Policies, samples and rewards; 8 samples a problem, of which 4 are right."""
    path = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        studied_run.make("none", {})
        write_params()
        for seed in SEEDS:
            folder = DATA / f"rewards/process/{seed}"
            write_json(folder / "aggregation.json", {"best_of": "min", "weighted": "last"})
    return path


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "own")
    monkeypatch.chdir(tmp_path / "own")


def write_params(**changes: object) -> None:
    content = {"seeds": SEEDS, "compute": COMPUTE | {"row_tokens": 96}}
    write_json(Path("params.yaml"), content | {"evaluation": EVALUATION | changes})


def read(seed: int, name: str, kind: type) -> list:
    return list(lines.read_lines(OUTPUT / f"{seed}/{name}.jsonl", kind))


def test_each_seed_is_scored_by_the_rewards_of_its_own(folder):
    evaluate.main("evaluate", "sft")
    for seed in SEEDS:
        scores = read(seed, "scores", Score)
        assert len(scores) == 6 * 8
        assert set(scores[0].scores) == set(scores[0].disagreement) == {"preference"}
        assert set(scores[0].steps) == {"process"}
        samples = list(lines.read_lines(DATA / f"samples/sft/{seed}/test.jsonl", Completion))
        sample = samples[3]
        prompt = studied_run.prompts("test", 6)[0]
        reward = reward_file.read_reward(DATA / "rewards/preference")
        ensemble = load_ensemble(
            reward_file.model_path(DATA / "rewards/preference", seed),
            reward.aggregate,
            compute(),
            CPU,
        )
        group = Group(prompt_ids=prompt.prompt_ids, completions=[sample.completion_ids],
                      indices=range(1))  # fmt: skip
        expected = float(ensemble.score_groups([group]).values[0])
        assert scores[3].scores["preference"] == pytest.approx(expected, abs=2e-5)
        # equal completions have equal scores
        assert scores[3].scores == scores[7].scores
    assert read(0, "scores", Score) != read(1, "scores", Score)


def test_the_numbers_are_those_of_the_samples(folder):
    evaluate.main("evaluate", "sft")
    metrics = json.loads((OUTPUT / "0/metrics.json").read_text(encoding="utf-8"))
    assert (metrics["num_problems"], metrics["num_samples"]) == (6, 8)
    assert metrics["mean_accuracy"] == metrics["dev_accuracy"] == metrics["pass/1"] == 0.5
    # the greedy completion of every other problem is right
    assert metrics["greedy_accuracy"] == 0.5
    # 6 of 28 pairs hold no right one of four
    assert metrics["pass/2"] == pytest.approx(22 / 28, abs=1e-6)
    rows, scores = read(0, "per_problem", ProblemResult), read(0, "scores", Score)
    samples = list(lines.read_lines(DATA / "samples/sft/0/test.jsonl", Completion))
    right = [float(row.completion.endswith("9")) for row in samples[:8]]
    values = [row.scores["preference"] for row in scores[:8]]
    by_hand = best_of_n(np.array(values), np.array(right), n=2)
    assert rows[0].accuracy_at["best_of/preference"]["2"] == pytest.approx(by_hand)
    lowest = [min(row.steps["process"]) for row in scores[:8]]
    by_hand = best_of_n(np.array(lowest), np.array(right), n=2)
    assert rows[0].accuracy_at["best_of/process"]["2"] == pytest.approx(by_hand)
    assert {"best_of/preference", "weighted/process", "weighted/mean_logprob", "best_of/format",
            "best_of/longest"} <= set(rows[0].accuracy_at)  # fmt: skip
    assert rows[0].num_correct == 4
    assert set(metrics["work"]) == {"preference", "process"}
    assert metrics["work"]["preference"]["read"]["positions"] > 0


def test_each_temperature_has_the_accuracy_of_its_file(folder):
    evaluate.main("evaluate", "sft")
    rows = read(0, "temperatures", TemperatureResult)
    assert len(rows) == 2 * 2 * 6
    assert {(row.file, row.num_samples) for row in rows} == {
        ("dev", 8), ("dev_greedy", 1), ("test", 8), ("test_greedy", 1),
    }  # fmt: skip
    assert [row.accuracy for row in rows if row.file == "test"] == [0.5] * 6
    assert [row.accuracy for row in rows if row.file == "test_greedy"] == [1.0, 0.0] * 3
    assert all(row.strict <= row.accuracy <= row.lenient for row in rows)


def test_a_rule_scores_nothing_and_without_models_the_rest_is_estimated(folder):
    shutil.rmtree(DATA / "rewards/process")
    shutil.rmtree(DATA / "rewards/preference")
    rule = reward_file.model_reward_file("preference").model_copy(update={"kind": "rule"})
    (DATA / "rewards/rule").mkdir()
    reward_file.write_reward(DATA / "rewards/rule", rule)
    evaluate.main("evaluate", "sft")
    (row, *_) = read(0, "per_problem", ProblemResult)
    assert set(row.accuracy_at) == {
        "pass", "majority", "best_of/longest", "best_of/shortest", "best_of/mean_logprob",
        "weighted/mean_logprob", "best_of/format", "weighted/format",
    }  # fmt: skip


def test_more_samples_than_a_quarter_of_the_pool_is_an_error_that_names_both(folder):
    write_params(ks=[1, 4])
    with pytest.raises(ValueError, match=r"numbers up to 2.*the 8 samples.*found 4"):
        evaluate.main("evaluate", "sft")
    assert not OUTPUT.exists()


@pytest.mark.parametrize("name", ["test", "test_greedy", "dev"])
def test_many_completions_cut_at_the_limit_are_no_result(folder, name):
    path = DATA / f"samples/sft/0/{name}.jsonl"
    samples = list(lines.read_lines(path, Completion))
    num_cut = len(samples) // 4 + 1
    cut = [replace(row, finish_reason="length") for row in samples[:num_cut]]
    lines.write_lines(path, [*cut, *samples[num_cut:]])
    write_params(max_cut_share=0.25)
    raise_what = rf"{name}\.jsonl repeat .* cut otherwise.*sampling\.{name.split('_')[0]}\.max_new"
    with pytest.raises(ValueError, match=raise_what):
        evaluate.main("evaluate", "sft")
    write_params(max_cut_share=0.9)
    evaluate.main("evaluate", "sft")
    metrics = json.loads((OUTPUT / "0/metrics.json").read_text(encoding="utf-8"))
    assert (metrics["truncation_rate"] > 0) == (name == "test")


def test_what_repeats_itself_is_counted_apart_and_stops_nothing(folder, caplog):
    path = DATA / "samples/sft/0/test_greedy.jsonl"
    first, second, *others = lines.read_lines(path, Completion)
    loop = replace(first, finish_reason="length", completion_ids=[5, *[6, 7] * 8])
    lines.write_lines(path, [loop, replace(second, finish_reason="length"), *others])
    write_params(max_cut_share=0.17)  # one of six
    evaluate.main("evaluate", "sft")
    of_seeds = [json.loads((OUTPUT / f"{seed}/metrics.json").read_text()) for seed in SEEDS]
    assert of_seeds[0]["in_loop/test_greedy"] == pytest.approx(1 / 6, abs=1e-6)
    assert not {"in_loop/test", "in_loop/dev"} & of_seeds[0].keys()
    assert "in_loop/test_greedy" not in of_seeds[1]
    lines.write_lines(
        path, [replace(item, finish_reason="length") for item in (loop, second, *others)]
    )
    with pytest.raises(ValueError, match=r"16\.7% of .* repeat themselves .* 83\.3% were cut"):
        evaluate.main("evaluate", "sft")


def test_a_second_run_writes_the_same_bytes(folder):
    written = []
    for _ in range(2):
        evaluate.main("evaluate", "sft")
        written.append({path: path.read_bytes() for path in sorted(OUTPUT.rglob("*.json*"))})
    assert len(written[0]) == 4 * len(SEEDS)
    assert written[0] == written[1]


def test_without_gold_answers_there_is_what_rewards_score(folder):
    for split in ("test", "dev"):
        path = PROMPTS / f"{split}.jsonl"
        lines.write_lines(
            path, [replace(line, answer=None) for line in list(lines.read_lines(path, Prompt))]
        )
    evaluate.main("evaluate", "sft")
    metrics = json.loads((OUTPUT / "0/metrics.json").read_text(encoding="utf-8"))
    assert set(metrics) == {
        "num_problems", "reward/preference", "reward/process", "mean_tokens", "truncation_rate",
        "generated_tokens", "work",
    }  # fmt: skip
    rows, scores = read(0, "per_problem", ScoredPrompt), read(0, "scores", Score)
    assert rows[0].scores["preference"] == [row.scores["preference"] for row in scores[:8]]
    lowest = [min(row.steps["process"]) for row in scores[:8]]
    assert rows[0].scores["process"] == pytest.approx(lowest)
    mean = np.mean([row.scores["preference"] for row in scores])
    assert metrics["reward/preference"] == pytest.approx(mean, abs=1e-6)
