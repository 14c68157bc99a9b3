import json
import subprocess
import sys
from pathlib import Path

import pytest

from stages import evaluate_policy
from stages.records import lines
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.records.results import ProblemResult

PARAMS = """
seed: 0
evaluate_policy: {ks: [1, 2], num_draws: 400, num_bootstrap: 300, confidence: 0.95}
"""
WORDS = ("sft", "old-test", "score_candidates/sft/scores", "no_choice")


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
    """Problem `a` with answers 7 7 5 6 twice, `b` with 5 5 5 7 twice; gold 7, scored in turn."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS, encoding="utf-8")
    pools = {"a": "77567756", "b": "55575557"}
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
    scores = [
        Score(id=name, index=i, scores={"outcome": float(i % 4)}, disagreement=None, steps=None)
        for name, i, _ in rows
    ]
    lines.write(Path("data/score_candidates/sft/scores.jsonl"), scores)
    Path("data/no_choice.json").write_text("null", encoding="utf-8")
    Path("data/no_scores.jsonl").write_text("", encoding="utf-8")


def test_the_numbers_are_those_worked_by_hand():
    evaluate_policy.main(*WORDS)
    metrics = json.loads((evaluate_policy.OUTPUT / "sft/metrics.json").read_text(encoding="utf-8"))
    value = {
        method: {n: one["value"] for n, one in of_n.items()}
        for method, of_n in metrics["accuracy_at"].items()
    }
    assert (metrics["num_problems"], metrics["num_samples"]) == (2, 8)
    assert metrics["greedy_accuracy"]["value"] == 0.5
    assert metrics["mean_accuracy"] == {"value": 0.375, "low": 0.25, "high": 0.5}
    assert metrics["mean_strict"] == metrics["mean_lenient"] == metrics["mean_accuracy"]
    # a: 22 of 28 pairs hold a 7; b: 13 of 28.
    assert value["pass"] == pytest.approx({"1": 0.375, "2": (22 / 28 + 13 / 28) / 2}, abs=1e-6)
    # a: the 6 pairs of 7s win, 16 tie; b: one pair of 7s wins, 12 tie.
    assert value["majority"] == pytest.approx({"1": 0.375, "2": (14 / 28 + 7 / 28) / 2}, abs=1e-6)
    # Of the scores 0 0 1 1 2 2 3 3, a is right at 0 and 1, b at 3: a wins with 6 pairs, b with 13.
    assert value["best_of/outcome"] == pytest.approx(
        {"1": 0.375, "2": (6 / 28 + 13 / 28) / 2}, abs=1e-6
    )
    # A vote of two is decided by the higher weight, as the best of two; what differs is the draw.
    assert value["weighted/outcome"]["2"] == pytest.approx((6 / 28 + 13 / 28) / 2, abs=0.05)
    assert metrics["minus_majority"]["best_of/outcome"]["1"]["value"] == 0.0
    assert metrics["minus_mean"]["majority"]["2"]["value"] == pytest.approx(0.0, abs=1e-6)
    # All completions are of one length and probability: these choose at random.
    for method in ("best_of/longest", "best_of/shortest", "best_of/mean_logprob"):
        assert value[method] == {"1": 0.375, "2": 0.375}

    rows = list(lines.read(evaluate_policy.OUTPUT / "sft/per_problem.jsonl", ProblemResult))
    assert [(row.id, row.num_correct, row.greedy_correct) for row in rows] == [
        ("a", 4, True),
        ("b", 2, False),
    ]


def test_without_scores_what_needs_none_is_estimated():
    evaluate_policy.main("sft", "old-test", "no_scores", "no_choice")
    metrics = json.loads((evaluate_policy.OUTPUT / "sft/metrics.json").read_text(encoding="utf-8"))
    assert set(metrics["accuracy_at"]) == {
        "pass", "majority", "best_of/longest", "best_of/shortest", "best_of/mean_logprob",
        "weighted/mean_logprob", "best_of/format", "weighted/format",
    }  # fmt: skip


def test_more_samples_than_a_quarter_of_the_pool_is_an_error_that_names_both():
    text = PARAMS.replace("[1, 2]", "[1, 4]")
    Path("params.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"numbers up to 2.*the 8 completions.*found 4"):
        evaluate_policy.main(*WORDS)


def test_a_second_run_writes_the_same_bytes():
    written = []
    for _ in range(2):
        evaluate_policy.main(*WORDS)
        written.append((evaluate_policy.OUTPUT / "sft/metrics.json").read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize(
    "stage",
    [
        "label_preferences",
        "select_demonstrations",
        "evaluate_policy",
        "compare_policies",
        "choose_aggregation",
    ],
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
