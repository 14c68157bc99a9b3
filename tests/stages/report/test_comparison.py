"""Families of comparisons, and accuracy by difficulty without regression to the mean."""

import numpy as np
import pytest

from stages.report import comparison
from stages.report.results import Results

SEEDS = [0, 1]
NAMES = ("outcome", "mean_logprob", "format", "longest", "shortest")


def results(accuracy, *, majority=None, halves=None):
    """Policies with the same accuracy table for every estimate but those given."""
    tables = {}
    for policy, table in accuracy.items():
        values = np.asarray(table, dtype=np.float64)
        ways = [f"{way}/{name}/4" for way in ("best_of", "weighted") for name in NAMES]
        keys = ["mean_strict", "mean_lenient", "greedy_accuracy", "greedy_strict", "greedy_lenient",
                "mean_accuracy", "readable_rate", "format_rate", "truncation_rate", "mean_tokens",
                "majority/4", "pass/4", *ways]  # fmt: skip
        tables[policy] = dict.fromkeys(keys, values)
        if majority is not None:
            tables[policy]["majority/4"] = np.asarray(majority, dtype=np.float64)
    problems = next(iter(tables.values()))["mean_accuracy"].shape[1]
    dev = {name: {"dev_accuracy": table["mean_accuracy"].mean()} for name, table in tables.items()}
    return Results(
        seeds=SEEDS,
        ids=[f"p{at}" for at in range(problems)],
        num_samples=16,
        ns=[4],
        tables=tables,
        halves=halves or {name: (t["mean_accuracy"],) * 2 for name, t in tables.items()},
        metrics={
            name: dict.fromkeys(SEEDS, one | {"auc/outcome": 0.7}) for name, one in dev.items()
        },
    )


SFT, DPO, GRPO = [[0.25, 0.5, 0.0]] * 2, [[0.5, 0.75, 0.25]] * 2, [[0.75, 1.0, 0.5]] * 2


def test_policies_against_the_baseline_and_each_other():
    found = comparison.compare(results({"sft": SFT, "dpo": DPO, "grpo": GRPO}), confidence=0.95)
    gains = found["gains"]["mean_accuracy"]
    assert {name: (one["value"], one["significant"]) for name, one in gains.items()} == {
        "dpo": (0.25, True), "grpo": (0.5, True),
    }  # fmt: skip
    (pair,) = found["pairs"]
    assert pair == "grpo - dpo", "the larger mean is first"
    assert found["pairs"][pair]["value"] == 0.25
    assert found["policies"]["sft"]["mean_accuracy"]["value"] == 0.25
    assert found["best_on_dev"] == "grpo"
    assert (found["n"], found["num_problems"], found["seeds"]) == (4, 3, [0, 1])


def test_ways_to_choose_against_the_majority_and_the_format():
    found = comparison.compare(results({"sft": DPO}, majority=SFT), confidence=0.95)
    of_sft = found["selection"]["sft"]
    assert set(of_sft["over_majority"]) == {
        "best_of/outcome", "best_of/mean_logprob", "weighted/outcome", "weighted/mean_logprob",
    }  # fmt: skip
    assert of_sft["over_majority"]["best_of/outcome"]["value"] == 0.25
    assert of_sft["over_format"]["best_of/outcome"]["value"] == 0.0
    assert set(of_sft["accuracy"]) > set(of_sft["over_majority"])
    assert of_sft["auc"] == {"outcome": {"value": 0.7, "seeds": {"0": 0.7, "1": 0.7}}}
    assert found["gains"]["mean_accuracy"] == found["pairs"] == {}


def test_fifths_by_one_half_of_the_samples_measured_by_the_other():
    even = np.array([[1.0, 0.0, 0.25, 0.75, 0.5] * 2] * 2)
    odd = np.tile(np.arange(10) / 10, (2, 1))
    other = np.full((2, 10), 0.5)
    found = comparison.difficulty(
        results({"sft": even, "dpo": other}, halves={"sft": (even, odd), "dpo": (other, other)}),
        confidence=0.95,
    )
    assert [group["problems"] for group in found] == [2] * 5
    # The hardest are problems 1 and 6, on which the other half is right 0.1 and 0.6 of the time.
    hardest, *_, easiest = found
    assert hardest["policies"]["sft"]["value"] == pytest.approx(0.35)
    assert easiest["policies"]["sft"]["value"] == pytest.approx(0.25)
    assert hardest["policies"]["dpo"]["value"] == 0.5


def test_luck_does_not_come_back():
    # All problems are equally hard: whatever looks hard was unlucky, and is no longer.
    stream = np.random.default_rng(1)
    even, odd = stream.binomial(4, 0.5, (2, 2, 5000)) / 4
    found = comparison.difficulty(
        results({"sft": even}, halves={"sft": (even, odd)}), confidence=0.95
    )
    honest = [group["policies"]["sft"]["value"] for group in found]
    assert np.abs(np.array(honest) - 0.5).max() < 0.03
