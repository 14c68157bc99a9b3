import dataclasses

import pytest

from stages.records.problems import Prompt
from stages.studies import search_results
from stages.studies.search_results import ProblemSearch, SearchCost, SearchSolution

PROMPT = Prompt(id="p", task="solve", question="", prompt="", prompt_ids=[1], answer="5")
COST = SearchCost(
    id="p", depth=2, generated_tokens=100, dropped_tokens=30, read_tokens=50, read_tokens_once=20,
    scored_tokens=70, scored_tokens_once=40,
)  # fmt: skip


def judged(*rows):
    return search_results.evaluate_search(
        PROMPT,
        [
            SearchSolution(
                id="p", index=i, tree=0, completion=text, completion_ids=[], step_scores=[score],
                score=score, kept=True, finish_reason="stop",
            )
            for i, (text, score) in enumerate(rows)
        ],
        COST,
        (3, 7),
    )  # fmt: skip


def test_three_ways_to_take_an_answer():
    # The best-scored is wrong; 5 has .5 + .2, written in two ways, and 6 has .6; 7 is thrice.
    result = judged(
        ("#### 6", 0.6), ("#### 5", 0.5), ("#### 10/2", 0.2),
        ("#### 7", 0.1), ("#### 7", 0.1), ("#### 7", 0.1), ("nothing", 0.9),
    )  # fmt: skip
    assert result.best == 0.0
    assert result.weighted == 1.0
    assert result.majority == 0.0
    assert result.any_right
    assert result.num_solutions == 7


def test_ties_are_split():
    result = judged(("#### 5", 0.5), ("#### 6", 0.5), ("#### 7", 0.2), ("#### 7", 0.2))
    assert result.best == 0.5
    assert result.weighted == 0.5
    assert result.majority == 0.0


def test_nothing_readable_is_wrong():
    result = judged(("", 0.5))
    assert (result.best, result.weighted, result.majority, result.any_right) == (0, 0, 0, False)


def test_operations_are_two_for_each_parameter_and_token():
    result = judged(("#### 5", 0.5))
    assert result.flops == pytest.approx(2 * (3 * (50 + 100) + 7 * 70))
    assert result.flops_once == pytest.approx(2 * (3 * (20 + 100) + 7 * 40))
    assert (result.generated_tokens, result.dropped_tokens, result.depth) == (100, 30, 2)


ROW = ProblemSearch(
    id="p", num_solutions=4, best=1.0, weighted=1.0, majority=0.0, any_right=True, depth=2,
    generated_tokens=100, dropped_tokens=30, read_tokens=50, read_tokens_once=20, scored_tokens=70,
    scored_tokens_once=40, flops=1000.0, flops_once=600.0,
)  # fmt: skip


def summarised(rows):
    return search_results.summarise_searches([rows], confidence=0.95)


def test_means_and_totals_by_hand():
    other = dataclasses.replace(ROW, best=0.0, majority=1.0, generated_tokens=50, flops=500.0)
    result = summarised([ROW, ROW, ROW, other])
    assert result["num_problems"] == 4
    assert result["generated_tokens"] == 350
    assert result["per_problem"]["generated_tokens"] == 87.5
    assert result["per_problem"]["flops"] == 875.0
    accuracies = result["accuracies"]
    assert accuracies["best"]["value"] == 0.75
    assert accuracies["majority"]["value"] == 0.25
    assert accuracies["best_minus_majority"]["value"] == 0.5
    assert accuracies["best"]["low"] < 0.75 < accuracies["best"]["high"]


def test_a_rate_without_variation_has_wilsons_interval():
    accuracies = summarised([ROW] * 10)["accuracies"]
    # Wilson's 95 % interval of 10 of 10: 1 / (1 + 1.96^2 / 10) = 0.722
    assert accuracies["any_right"] == pytest.approx({"value": 1.0, "low": 0.722467, "high": 1.0})
    assert accuracies["majority"]["high"] == pytest.approx(1 - 0.722467, abs=1e-6)
    # a difference is no rate
    assert accuracies["best_minus_majority"] == {"value": 1.0, "low": 1.0, "high": 1.0}
