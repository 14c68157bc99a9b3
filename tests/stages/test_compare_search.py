"""The stage on made-up files: a search that costs as much as samples and is right more often."""

import copy
import dataclasses
import json
from pathlib import Path

import presets
import pytest

from stages import compare_search
from stages.records import lines
from stages.records.completion import Completion
from stages.records.problem_result import ProblemResult
from stages.records.problem_search import ProblemSearch
from stages.records.prompt import Prompt
from stages.records.score import Score

DATA, OUTPUT = compare_search.DATA, compare_search.OUTPUT
PROBLEMS = [f"p{number}" for number in range(20)]
SEARCH = {
    "policy": "train_sft/sft/policy",
    "process": "train_process_reward/sft/process_model",
    "split": "test",
    "preset": "beam",
}
FOUND = ProblemSearch(
    id="", num_solutions=2, best=1.0, weighted=1.0, majority=0.5, any_right=True, depth=2,
    generated_tokens=8, dropped_tokens=2, read_tokens=20, read_tokens_once=10, scored_tokens=12,
    scored_tokens_once=8, flops=1000.0, flops_once=300.0,
)  # fmt: skip
RESULT = ProblemResult(
    id="", num_samples=8, num_correct=4, greedy_correct=True, greedy_strict=True,
    greedy_lenient=True, mean_accuracy=0.5, mean_strict=0.5, mean_lenient=0.5,
    accuracy_at={
        "majority": {"1": 0.5, "2": 0.75},
        "best_of/process": {"1": 0.5, "2": 0.5},
        "weighted/process": {"1": 0.5, "2": 1.0},
    },
    readable_rate=1.0, format_rate=1.0, truncation_rate=0.0, mean_tokens=4.0,
)  # fmt: skip


def plan(**tables):
    content = copy.deepcopy(presets.CONTENT["recipes"]["comparison"]) | tables
    settings = {"way": "weighted", "num_bootstrap": 200, "confidence": 0.95}
    Path("params.yaml").write_text(
        json.dumps({"seed": 0, "plan": content, "compare_search": settings}), encoding="utf-8"
    )


def compare():
    compare_search.main()
    metrics = json.loads((OUTPUT / "metrics.json").read_text(encoding="utf-8"))
    return metrics, (OUTPUT / "report.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prompts = [
        Prompt(id=name, task="solve", question="", prompt="", prompt_ids=[1] * 10, answer="7")
        for name in PROBLEMS
    ]
    pool = [
        Completion(id=name, index=index, completion="#### 7", completion_ids=[index] * 4,
                   logprob_sum=-1.0, finish_reason="stop", seed=0)
        for name in PROBLEMS for index in range(8)
    ]  # fmt: skip
    scores = [
        Score(id=row.id, index=row.index, scores={}, disagreement=None, steps=[0.5, 0.5])
        for row in pool
    ]
    lines.write(compare_search.PROMPTS, prompts)
    lines.write(DATA / "sample_candidates/sft-test/pool.jsonl", pool)
    lines.write(DATA / "score_candidates/sft-test/scores.jsonl", scores)
    results = [dataclasses.replace(RESULT, id=name) for name in PROBLEMS]
    lines.write(DATA / "evaluate_policy/sft/per_problem.jsonl", results)
    rows = [dataclasses.replace(FOUND, id=name) for name in PROBLEMS]
    lines.write(DATA / "search_solutions/beam/per_problem.jsonl", rows)
    sizes = {"policy_parameters": 10, "process_parameters": 5}
    (DATA / "search_solutions/beam/metrics.json").write_text(json.dumps(sizes), encoding="utf-8")


def test_a_search_is_compared_where_samples_cost_as_much():
    plan(search_solutions={"beam": SEARCH})
    metrics, report = compare()
    curves = metrics["curves"]
    # 2 x 10 x (prompt 10 + n x 4); the process model besides 2 x 5 x (10 + n x (4 + 2 steps)).
    assert {n: one["flops"] for n, one in curves["majority"].items()} == {"1": 280.0, "2": 360.0}
    process = {n: one["flops"] for n, one in curves["best-of-n, process"].items()}
    assert process == {"1": 280.0 + 160.0, "2": 360.0 + 220.0}
    assert {n: one["tokens"] for n, one in curves["majority"].items()} == {"1": 4.0, "2": 8.0}
    assert metrics["searches"]["beam"]["tokens"] == 8.0
    assert set(curves) == {"majority", "best-of-n, process", "weighted vote, process"}
    # With a cache it costs 300: more than one sample, less than two.
    once = metrics["searches"]["beam"]["versus"]["flops_once"]
    assert once["majority"]["n"] == 1
    line = 0.5 + 20 / 80 * 0.25
    gain = once["majority"]["ways"]["weighted"]["interpolated"]["difference"]
    assert gain == pytest.approx(1.0 - line, abs=1e-6)
    assert once["best-of-n, process"] is None, "one sample and its score cost more than the search"
    assert "beats" in report
    assert (OUTPUT / "plots/equal_compute.png").is_file()


def test_a_search_of_another_policy_or_split_is_not_compared():
    other = {"policy": "train_dpo/dpo/policy"}
    plan(search_solutions={"beam": SEARCH | other, "dvts": SEARCH | {"split": "dev"}})
    metrics, report = compare()
    assert metrics == {"curves": {}, "searches": {}}
    assert "No search of the baseline's policy on the test problems is in this plan." in report
    assert (OUTPUT / "plots/equal_compute.png").is_file()


def test_a_second_run_writes_the_same_bytes():
    plan(search_solutions={"beam": SEARCH})
    written = []
    for _ in range(2):
        compare()
        written.append([path.read_bytes() for path in sorted(OUTPUT.glob("*.*"))])
    assert written[0] == written[1]
