"""The study on random models: what is searched, and how it is compared with samples."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import studied_run
from ruamel.yaml import YAML
from studied_run import SEEDS
from vllm_installed import needs_vllm

import stages
from stages.records import lines
from stages.records.pools import Completion, ProblemResult, Score
from stages.rows import DATA
from stages.studies import search
from stages.studies.search_results import ProblemSearch, SearchSolution

PRESET = {
    "trees": 2, "keep": 1, "distinct": False, "expand": 2, "max_steps": 3, "max_new_tokens": 6,
    "temperature": 1.0, "aggregate": "last", "decimals": 5,
}  # fmt: skip
SETTINGS = {
    "policy": "sft", "process": "process", "way": "weighted", "confidence": 0.95,
    "presets": {"dvts": PRESET, "beam": PRESET | {"trees": 1, "keep": 2}},
}  # fmt: skip
STUDY = DATA / "studies/search"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    studied_run.make("search", SETTINGS)
    for seed in SEEDS:
        pool = list(lines.read_lines(DATA / f"samples/sft/{seed}/test.jsonl", Completion))
        evaluation = DATA / f"evaluations/sft/{seed}"
        scores = [
            Score(id=row.id, index=row.index, scores={}, disagreement={},
                  steps={"process": [0.5] * row.completion.count("\n") + [0.5]})
            for row in pool
        ]  # fmt: skip
        results = [
            ProblemResult(
                id=name, num_samples=8, num_correct=4, even_correct=2,
                greedy_correct=True, greedy_strict=True,
                greedy_lenient=True, mean_accuracy=0.5, mean_strict=0.5, mean_lenient=0.5,
                accuracy_at={
                    "majority": {"1": 0.5, "2": 0.75},
                    "best_of/process": {"1": 0.5, "2": 0.5},
                    "weighted/process": {"1": 0.5, "2": 1.0},
                },
                readable_rate=1.0, format_rate=1.0, truncation_rate=0.0, mean_tokens=4.0,
                auc={}, auc_in_format={},
            )
            for name in dict.fromkeys(row.id for row in pool)
        ]  # fmt: skip
        lines.write_lines(evaluation / "scores.jsonl", scores)
        lines.write_lines(evaluation / "per_problem.jsonl", results)


def run(engine="transformers"):
    """vLLM's engines start in processes forked from one that never used vLLM, as a stage's is."""
    if engine == "vllm":
        code = "from stages.studies import search; search.main()"
        environment = os.environ | {"PYTHONPATH": str(Path(stages.__file__).parents[1])}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    else:
        search.main()
    return studied_run.outputs("search")


@pytest.mark.parametrize(
    "engine", ["transformers", pytest.param("vllm", marks=[needs_vllm, pytest.mark.vllm])]
)
def test_rows_and_metrics_fit_together(engine, tmp_path):
    content = YAML(typ="safe").load(tmp_path / "params.yaml") | {"engine": engine}
    studied_run.write_yaml(tmp_path / "params.yaml", content)
    written = run(engine)
    metrics = json.loads(written["metrics.json"])
    assert set(metrics["searches"]) == {"dvts", "beam"}
    for seed in SEEDS:
        seed_folder = STUDY / f"rows/{seed}"
        solutions = list(lines.read_lines(seed_folder / "dvts.jsonl", SearchSolution))
        results = list(lines.read_lines(seed_folder / "dvts_problems.jsonl", ProblemSearch))
        assert [row.id for row in results] == [f"test{n}" for n in range(6)]
        policy, process = metrics["parameters"][str(seed)]
        for result in results:
            actual = [row for row in solutions if row.id == result.id]
            assert result.num_solutions == len(actual)
            assert {row.tree for row in actual} == {0, 1}
            sampled = result.generated_tokens
            # Two trees of two samples, then one place in each.
            assert sampled <= 2 * 2 * 6 * result.depth
            assert result.scored_tokens >= result.scored_tokens_once
            read = result.read_tokens + sampled
            assert result.flops == 2 * (policy * read + process * result.scored_tokens)
    tokens = [
        row.generated_tokens
        for seed in SEEDS
        for row in lines.read_lines(STUDY / f"rows/{seed}/dvts_problems.jsonl", ProblemSearch)
    ]
    summary = metrics["summaries"]["dvts"]
    assert summary["generated_tokens"] == sum(tokens)
    assert summary["per_problem"]["generated_tokens"] == pytest.approx(sum(tokens) / len(tokens))
    assert metrics["searches"]["dvts"]["tokens"] == pytest.approx(sum(tokens) / len(tokens))
    assert set(metrics["curves"]) == {"majority", "best-of-n, process", "weighted vote, process"}
    assert "`dvts`, weighted vote, at its cost" in written["report.md"].decode()
    assert written["plots/equal_compute.png"].startswith(b"\x89PNG")
    assert json.loads((STUDY / "journal/key.json").read_text())["stage"].endswith("dvc.yaml:search")
    assert run(engine) == written


def test_samples_cost_their_tokens_and_a_process_model_its_steps_too():
    metrics = json.loads(run()["metrics.json"])
    problems = [
        list(lines.read_lines(DATA / f"samples/sft/{seed}/test.jsonl", Completion))
        for seed in SEEDS
    ]
    mean = sum(len(row.completion_ids) for rows in problems for row in rows) / (2 * 6 * 8)
    policy, _ = metrics["parameters"]["0"]
    prompts = [len(prompt.prompt_ids) for prompt in studied_run.prompts("test", 6)]
    prompt = sum(prompts) / len(prompts)
    plain = metrics["curves"]["majority"]
    assert plain["2"]["flops"] == pytest.approx(2 * policy * (prompt + 2 * mean))
    assert plain["2"]["tokens"] == pytest.approx(2 * mean)
    scored = metrics["curves"]["best-of-n, process"]
    assert scored["2"]["flops"] > plain["2"]["flops"]
    assert scored["2"]["tokens"] == plain["2"]["tokens"]
