import dataclasses

import pytest

from stages.records.problems import Prompt
from stages.records.steps import PrefixCount
from stages.rewards import monte_carlo_labels
from stages.rewards.step_solutions import Solution

PROMPT = Prompt(id="a", task="solve", question="", prompt="Q", prompt_ids=[9], answer="4")
SOLUTION = Solution(
    prompt=PROMPT,
    index=3,
    step_ids=[[1, 2], [3], [4, 5]],
    steps=["x", "y", "#### 4"],
    correct=True,
    true_labels=[True, False, False],
)


def count(ids, right, drawn=8):
    return PrefixCount(
        id="a",
        prefix_ids=ids,
        num_completions=drawn,
        num_right=right,
        low=0.0,
        high=1.0,
        generated_tokens=0,
    )


COUNTS = [count([1, 2, 3], 0), count([1, 2], 3), count([7], 8)]


@pytest.mark.parametrize(
    ("kind", "labels"), [("hard", [1.0, 0.0, 1.0]), ("soft", [0.375, 0.0, 1.0])]
)
def test_hard_is_any_soft_is_the_share_and_the_last_is_the_verdict(kind, labels):
    ((row, counts),) = monte_carlo_labels.labelled([SOLUTION], COUNTS, kind)
    assert row.labels == labels
    assert row.num_completions == [8, 8, 0]
    assert [count.num_right for count in counts] == [3, 0]
    assert (row.source, row.index, row.correct) == ("math_shepherd", 3, True)
    assert row.true_labels == [True, False, False]
    assert row.step_ids == SOLUTION.step_ids


def test_a_guess_needs_no_completion():
    guess = dataclasses.replace(SOLUTION, step_ids=[[4]], steps=["#### 5"], correct=False)
    ((row, counts),) = monte_carlo_labels.labelled([guess], [], "soft")
    assert (row.labels, row.num_completions, counts) == ([0.0], [0], [])


def test_of_another_problem_equal_tokens_are_another_prefix():
    other = dataclasses.replace(SOLUTION, prompt=dataclasses.replace(PROMPT, id="b"))
    with pytest.raises(KeyError):
        monte_carlo_labels.labelled([other], COUNTS, "hard")


def test_the_known_truth():
    ((row, _),) = monte_carlo_labels.known([SOLUTION])
    assert row.labels == [1.0, 0.0, 0.0]
    assert row.num_completions == [0, 0, 0]
    assert row.source == "truth"


def test_a_truth_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="Set num_completions to 1"):
        monte_carlo_labels.known([dataclasses.replace(SOLUTION, true_labels=None)])
