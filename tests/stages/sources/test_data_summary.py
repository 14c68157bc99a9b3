import pytest

from stages.records.problems import Demonstration, Prompt
from stages.sources import data_summary
from stages.sources.data_summary import DataSummary


def prompt(question: str, length: int) -> Prompt:
    return Prompt(
        id=question,
        task="solve",
        question=question,
        prompt=question,
        prompt_ids=[0] * length,
        answer="1",
    )


def test_lengths_are_nearest_ranks():
    assert data_summary.length_quantiles(range(1, 101)) == {
        "min": 1,
        "median": 50,
        "p95": 95,
        "max": 100,
    }
    assert data_summary.length_quantiles([7]) == {"min": 7, "median": 7, "p95": 7, "max": 7}
    assert data_summary.length_quantiles([3, 1]) == {"min": 1, "median": 1, "p95": 3, "max": 3}
    assert data_summary.length_quantiles([]) == {}


def test_overlaps_and_repetitions_are_counted_by_question():
    summary = DataSummary()
    for question in ("a?", "A ?", "b?", "b? "):
        summary.add_prompt("train", prompt(question, 1))
    summary.add_prompt("test", prompt("B?", 2))
    card = summary.describe()
    empty = {"preference": 0, "dev": 0}
    assert card["counts"] == {"train": 4, "test": 1, "demonstrations": 0} | empty
    assert {name for name, number in card["overlaps"].items() if number} == {"train-test"}
    assert card["repeated_questions"] == {"train": 1, "test": 0} | empty
    assert summary.longest_prompt == 2


def test_demonstrations_are_counted_by_task_and_the_first_is_the_example():
    summary = DataSummary()
    for number, task in enumerate(("solve", "judge", "solve"), start=1):
        ids = [1] * number
        summary.add_demonstration(
            Demonstration(
                id=task,
                task=task,
                prompt="",
                prompt_ids=ids,
                completion="a\n\nb\n",
                completion_ids=ids,
            )
        )
    card = summary.describe()
    assert card["counts"]["demonstrations"] == 3
    assert card["demonstrations_by_task"] == {"solve": 2, "judge": 1}
    assert sorted(summary.all_completion_tokens()) == [1, 2, 3]
    assert summary.completion_lines == 3 * 2
    assert summary.longest_prompt == 3
    assert summary.example is not None
    assert summary.example.prompt_ids == [1]


@pytest.mark.parametrize(("prompt_ids", "completion_ids"), [([1, 7], [2]), ([1], [7, 2])])
def test_the_largest_token_is_that_of_prompts_and_completions(prompt_ids, completion_ids):
    summary = DataSummary()
    summary.add_prompt("train", prompt("a?", 3))
    summary.add_demonstration(
        Demonstration(
            id="a", task="judge", prompt="", prompt_ids=prompt_ids, completion="",
            completion_ids=completion_ids,
        )
    )  # fmt: skip
    assert summary.largest_id == 7
