import pytest

from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.rewards import balanced_outcomes

PROMPT = Prompt(id="a", task="solve", question="", prompt="", prompt_ids=[5], answer="7")


def pool(*answers):
    """Completions with these answers; equal answers are equal completions."""
    return [
        Completion(
            id="a",
            index=index,
            completion=f"#### {answer}",
            completion_ids=[10 + int(answer), 1],
            logprob_sum=-1.0,
            finish_reason="stop",
            seed=0,
        )
        for index, answer in enumerate(answers)
    ]


def balance(rows, *, most=4, one_class=0.0, right=None, seed=0):
    verdicts = balanced_outcomes.verdicts(PROMPT, rows) if right is None else right
    return balanced_outcomes.balance(
        PROMPT, rows, verdicts, max_per_problem=most, one_class_weight=one_class, seed=seed
    )


def weights(outcomes):
    return {
        side: sum(row.weight for row in outcomes if row.right is side) for side in (True, False)
    }


@pytest.mark.parametrize("num_wrong", [1, 2, 9])
def test_right_and_wrong_weigh_the_same_whatever_their_numbers(num_wrong):
    rows = pool(7, *range(10, 10 + num_wrong))
    found = balance(rows, most=6)
    assert len(found) == min(6, 1 + num_wrong)
    assert weights(found) == pytest.approx({True: 0.5, False: 0.5})


def test_a_side_that_lacks_rows_gives_its_places_to_the_other():
    right = [True] * 5 + [False]
    found = balance(pool(1, 2, 3, 4, 5, 6), right=right, most=4)
    assert [row.right for row in found] == [True, True, True, False]
    assert [row.weight for row in found] == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    even = balance(pool(*range(8)), right=[True] * 4 + [False] * 4, most=5)
    assert [row.right for row in even].count(True) == 3


def test_equal_completions_count_once():
    found = balance(pool(7, 7, 7, 8, 8))
    assert [(row.right, row.completion_ids, row.weight) for row in found] == [
        (True, [17, 1], 0.5),
        (False, [18, 1], 0.5),
    ]


@pytest.mark.parametrize("answers", [(7,), (8, 9, 6)])
def test_a_problem_of_one_class_is_left_out_or_weighs_what_is_asked(answers):
    assert balance(pool(*answers)) == []
    found = balance(pool(*answers), one_class=0.3)
    assert len(found) == len(answers)
    assert sum(row.weight for row in found) == pytest.approx(0.3)


def test_the_draw_depends_on_the_seed_alone():
    rows = pool(*range(9))
    right = [index % 2 == 0 for index in range(9)]
    drawn = [balance(rows, right=right, seed=seed) for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert drawn[2:] != drawn[:2]


def test_what_is_tested_on_is_every_completion_as_sampled():
    rows = pool(7, 7, 8)
    found = balanced_outcomes.everything(PROMPT, rows, [True, True, False])
    assert [row.right for row in found] == [True, True, False]
    assert [row.weight for row in found] == pytest.approx([1 / 3] * 3)
