import pytest

from stages.records.prompt import Prompt
from stages.records.search_cost import SearchCost
from stages.records.search_solution import SearchSolution
from stages.rewards import search_evaluation

PROMPT = Prompt(id="p", task="solve", question="", prompt="", prompt_ids=[1], answer="5")
COST = SearchCost(
    id="p", depth=2, generated_tokens=100, dropped_tokens=30, read_tokens=50, read_tokens_once=20,
    scored_tokens=70, scored_tokens_once=40,
)  # fmt: skip


def judged(*rows):
    return search_evaluation.evaluate(
        PROMPT,
        [
            SearchSolution(
                id="p", index=i, tree=0, completion=text, completion_ids=[], step_scores=[score],
                score=score, kept=True, finish_reason="stop",
            )
            for i, (text, score) in enumerate(rows)
        ],
        COST,
        policy_parameters=3,
        process_parameters=7,
    )  # fmt: skip


def test_three_ways_to_take_an_answer():
    # The best-scored is wrong; 5 has .5 + .2, written in two ways, and 6 has .6; 7 is thrice.
    found = judged(
        ("#### 6", 0.6), ("#### 5", 0.5), ("#### 10/2", 0.2),
        ("#### 7", 0.1), ("#### 7", 0.1), ("#### 7", 0.1), ("nothing", 0.9),
    )  # fmt: skip
    assert found.best == 0.0
    assert found.weighted == 1.0
    assert found.majority == 0.0
    assert found.any_right
    assert found.num_solutions == 7


def test_ties_are_split():
    found = judged(("#### 5", 0.5), ("#### 6", 0.5), ("#### 7", 0.2), ("#### 7", 0.2))
    assert found.best == 0.5
    assert found.weighted == 0.5
    assert found.majority == 0.0


def test_nothing_readable_is_wrong():
    found = judged(("", 0.5))
    assert (found.best, found.weighted, found.majority, found.any_right) == (0, 0, 0, False)


def test_operations_are_two_for_each_parameter_and_token():
    found = judged(("#### 5", 0.5))
    assert found.flops == pytest.approx(2 * (3 * (50 + 100) + 7 * 70))
    assert found.flops_once == pytest.approx(2 * (3 * (20 + 100) + 7 * 40))
    assert (found.generated_tokens, found.dropped_tokens, found.depth) == (100, 30, 2)
