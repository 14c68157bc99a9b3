import pytest

from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import balanced_outcomes
from stages.rewards.verifier_labels import JudgedPool, judge

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
    judged = judge(PROMPT, rows)
    if right is not None:
        sides = [[row for row, one in zip(rows, right, strict=True) if one is side]
                 for side in (True, False)]  # fmt: skip
        judged = JudgedPool(prompt=PROMPT, right=sides[0], wrong=sides[1])
    return balanced_outcomes.balance(
        judged, max_per_problem=most, one_class_weight=one_class, seed=seed
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
    judged = [judge(PROMPT, rows) for rows in (pool(7, 8, 7), pool(8, 8))]
    some, others = balanced_outcomes.tested_on(judged)
    assert [row.right for row in some] == [True, True, False]
    assert [row.weight for row in some] == pytest.approx([1 / 3] * 3)
    assert [(row.right, row.weight) for row in others] == [(False, 0.5)] * 2


def test_what_is_learned_from_is_of_problems_that_have_any_and_one_must_have_both():
    both, one_class = (judge(PROMPT, rows) for rows in (pool(7, 8), pool(7, 7)))
    settings = {"max_per_problem": 4, "one_class_weight": 0.0, "seed": 0}
    assert len(balanced_outcomes.learned([one_class, both, one_class], **settings)) == 1
    with pytest.raises(ValueError, match="found none of 2"):
        balanced_outcomes.learned([one_class] * 2, **settings | {"one_class_weight": 1.0})
