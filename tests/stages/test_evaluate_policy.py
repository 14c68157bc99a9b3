import json
import subprocess
import sys
from pathlib import Path

import pytest

from stages import evaluate_policy
from stages.records import lines
from stages.records.completion import Completion
from stages.records.problem_result import ProblemResult
from stages.records.prompt import Prompt
from stages.records.score import Score

PARAMS = "seed: 0\nevaluate_policy: {ks: [1, 2, 4], num_bootstrap: 300, confidence: 0.95}\n"


def completion(name: str, index: int, answer: str) -> Completion:
    return Completion(
        id=name,
        index=index,
        completion=f"a step\n#### {answer}",
        completion_ids=[1, 2, 3],
        logprob_sum=-1.0,
        finish_reason="stop",
        seed=0,
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Two problems: `a` with answers 7 7 5 6, `b` with 5 5 5 7; gold 7, scored in this order."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS, encoding="utf-8")
    pools = {"a": "7756", "b": "5557"}
    lines.write(
        evaluate_policy.PROMPTS,
        [
            Prompt(id=name, task="solve", question="", prompt="", prompt_ids=[1], answer="7")
            for name in pools
        ],
    )
    rows = [(name, i, answer) for name, text in pools.items() for i, answer in enumerate(text)]
    folder = evaluate_policy.POOLS / "old-test"
    lines.write(folder / "pool.jsonl", [completion(*row) for row in rows])
    lines.write(folder / "greedy.jsonl", [completion("a", 0, "7"), completion("b", 0, "5")])
    scores = [Score(id=name, index=i, score=float(i)) for name, i, _ in rows]
    lines.write(evaluate_policy.SCORES / "sft-rm/scores.jsonl", scores)


def test_the_numbers_are_those_worked_by_hand():
    evaluate_policy.main("sft", "old-test", "sft-rm")
    metrics = json.loads((evaluate_policy.OUTPUT / "sft/metrics.json").read_text(encoding="utf-8"))
    value = {
        name: {n: one["value"] for n, one in metrics[name].items()}
        for name in ("pass_at", "majority_at", "best_of")
    }
    assert (metrics["num_problems"], metrics["num_samples"]) == (2, 4)
    assert metrics["greedy_accuracy"]["value"] == 0.5
    assert metrics["mean_accuracy"] == {"value": 0.375, "low": 0.25, "high": 0.5}
    # a: 5 of 6 pairs hold a 7; b: 3 of 6.
    assert value["pass_at"] == pytest.approx({"1": 0.375, "2": (5 / 6 + 1 / 2) / 2, "4": 1.0})
    # a: the pair of 7s wins, four pairs tie: (1 + 4/2)/6. b: three pairs tie: (3/2)/6.
    assert value["majority_at"] == pytest.approx({"1": 0.375, "2": 0.375, "4": 0.5})
    # a: only the pair (0, 1) picks a 7. b: the last is best, and right, in three of six pairs.
    assert value["best_of"] == pytest.approx(
        {"1": 0.375, "2": (1 / 6 + 1 / 2) / 2, "4": 0.5}, abs=1e-6
    )
    assert metrics["best_of_minus_majority"]["4"]["value"] == 0.0
    assert metrics["mean_tokens"]["value"] == 3.0

    rows = list(lines.read(evaluate_policy.OUTPUT / "sft/per_problem.jsonl", ProblemResult))
    assert [(row.id, row.num_correct, row.greedy_correct) for row in rows] == [
        ("a", 2, True),
        ("b", 1, False),
    ]


def test_more_samples_than_the_pool_holds_is_an_error_that_names_both():
    text = PARAMS.replace("[1, 2, 4]", "[1, 8]")
    Path("params.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"numbers up to 4.*found 8.*num_samples"):
        evaluate_policy.main("sft", "old-test", "sft-rm")


def test_a_second_run_writes_the_same_bytes():
    written = []
    for _ in range(2):
        evaluate_policy.main("sft", "old-test", "sft-rm")
        written.append((evaluate_policy.OUTPUT / "sft/metrics.json").read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize(
    "stage", ["label_preferences", "select_demonstrations", "evaluate_policy", "compare_policies"]
)
def test_what_needs_no_model_imports_no_torch(stage):
    code = (
        f"import sys, stages.{stage}\n"
        "print([m for m in ('torch', 'transformers', 'mlflow', 'prefect') if m in sys.modules])"
    )
    root = Path(evaluate_policy.__file__).parents[1]
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
