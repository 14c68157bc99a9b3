import dataclasses

import judged_rows
import pytest
from tiny_rollouts import make_pairs

from stages.records.pools import Completion
from stages.rewards import verifier_labels
from stages.rewards.verifier_labels import CheckedProblem, check_pool

PROMPT = judged_rows.prompt(gold="42")


def completion(index: int, *, answer: str = "42", cut: bool = False) -> Completion:
    text = f"step {index}\n#### {answer}"
    return judged_rows.completion(text, index, ids=[10 + index, 3], cut=cut)


def label(
    pool: list[Completion], max_pairs: int = 99, seed: int = 0
) -> verifier_labels.LabelledPairs:
    return verifier_labels.label_pairs(PROMPT, pool, max_pairs=max_pairs, seed=seed)


def pairs(pool: list[Completion], **options) -> list[tuple[int, int]]:
    """The numbers of the chosen and the rejected completion of each preference."""
    preferences = label(pool, **options).preferences
    return [
        (preference.chosen_ids[0] - 10, preference.rejected_ids[0] - 10)
        for preference in preferences
    ]


def test_a_pair_is_a_right_and_a_wrong_completion_with_their_tokens_as_sampled():
    (row,) = label([completion(0, answer="41"), completion(1)]).preferences
    assert (row.id, row.prompt, row.prompt_ids) == ("a", "3 + 4?", [5])
    assert (row.chosen, row.chosen_ids) == ("step 1\n#### 42", [11, 3])
    assert (row.rejected, row.rejected_ids) == ("step 0\n#### 41", [10, 3])
    assert (row.probability, row.source) == (1.0, "verifier")


def test_every_pair_comes_once_when_all_are_asked_for():
    pool = [completion(i, answer="42" if i < 2 else "7") for i in range(6)]
    result = pairs(pool)
    assert sorted(result) == [(i, j) for i in (0, 1) for j in (2, 3, 4, 5)]


def test_no_completion_is_repeated_before_it_must():
    pool = [completion(i, answer="42" if i < 3 else "7") for i in range(7)]
    result = pairs(pool, max_pairs=3)
    assert len({chosen for chosen, _ in result}) == 3
    assert len({rejected for _, rejected in result}) == 3


def test_pairs_depend_on_the_seed_and_on_nothing_else():
    pool = [completion(i, answer="42" if i < 4 else "7") for i in range(8)]
    assert pairs(pool, max_pairs=2, seed=5) == pairs(pool, max_pairs=2, seed=5)
    assert len({tuple(pairs(pool, max_pairs=2, seed=seed)) for seed in range(20)}) > 10


def test_a_cut_completion_is_rejected_when_wrong_and_unused_when_right():
    pool = [completion(0, cut=True), completion(1), completion(2, answer="7", cut=True)]
    assert pairs(pool) == [(1, 2)]


def test_completions_with_the_same_tokens_count_once():
    pool = [completion(0), completion(0), completion(2, answer="7"), completion(2, answer="7")]
    assert pairs(pool) == [(0, 2)]


def test_an_unreadable_completion_is_wrong():
    unreadable = completion(1, answer="")
    assert pairs([completion(0), unreadable]) == [(0, 1)]


def test_the_summary_counts_problems_by_their_fate():
    labelled = [
        label([completion(0), completion(1, answer="7"), completion(2, answer="8")]),
        label([completion(0), completion(1)]),
        label([completion(0, answer="7")]),
        label([completion(0, cut=True), completion(1, answer="7")]),
    ]
    assert verifier_labels.summarise_pairs(labelled) == {
        "problems": 4,
        "problems_with_pairs": 1,
        "problems_all_correct": 1,
        "problems_all_wrong": 1,
        "problems_right_only_cut": 1,
        "pairs": 2,
        "mean_length_chosen": 2.0,
        "mean_length_rejected": 2.0,
    }


def kept(pool: list[Completion], max_kept: int = 9, seed: int = 0) -> list[list[int]]:
    rows = verifier_labels.select_demonstrations(PROMPT, pool, max_kept=max_kept, seed=seed)
    assert all((row.id, row.prompt, row.prompt_ids) == ("a", "3 + 4?", [5]) for row in rows)
    return [row.completion_ids for row in rows]


def test_right_distinct_completions_that_ended_are_kept():
    pool = [
        completion(0),
        completion(1, answer="5"),
        completion(2, cut=True),
        completion(0),
        completion(4),
    ]
    assert kept(pool) == [[10, 3], [14, 3]]


def test_of_many_so_many_are_drawn_in_the_order_of_the_pool():
    pool = [completion(index) for index in range(6)]
    draws = {tuple(first for first, _ in kept(pool, 2, seed)) for seed in range(20)}
    assert all(len(draw) == 2 and draw[0] < draw[1] for draw in draws)
    assert len(draws) > 3
    assert kept(pool, 2, 0) == kept(pool, 2, 0)


def test_the_summary_counts_problems_and_the_share_of_all_completions():
    (row,) = verifier_labels.select_demonstrations(PROMPT, [completion(0)], max_kept=1, seed=0)
    assert verifier_labels.summarise_demonstrations([[row, row], []], 8) == {
        "problems": 2,
        "problems_with_any": 1,
        "kept": 2,
        "share": 0.25,
    }


PAIRS = make_pairs(40, probability=0.9)


def wrong(percent, seed=0, pairs=PAIRS):
    """Numbers of the pairs that were flipped."""
    result = verifier_labels.flip_labels(pairs, percent, seed)
    return {i for i, pair in enumerate(result) if pair != pairs[i]}


def test_a_flipped_label_is_its_complement_and_nothing_else_changes():
    for before, after in zip(PAIRS, verifier_labels.flip_labels(PAIRS, 100, seed=0), strict=True):
        assert after == dataclasses.replace(before, probability=1 - 0.9)


@pytest.mark.parametrize(
    ("percent", "number"), [(0, 0), (1, 0), (2, 1), (10, 4), (25, 10), (100, 40)]
)
def test_exactly_that_share_is_flipped(percent, number):
    # 1 % of 40 is 0.4, 2 % are 0.8.
    assert len(wrong(percent)) == number


def test_half_a_pair_is_one():
    assert len(wrong(25, pairs=PAIRS[:2])) == 1


def test_less_noise_is_part_of_more_and_a_seed_is_one_order():
    assert wrong(10) < wrong(25) < wrong(50)
    assert wrong(25) == wrong(25)
    assert wrong(25) != wrong(25, seed=1)


OUTCOME_PROMPT = judged_rows.prompt(gold="7")


def outcome_pool(*answers):
    """Completions with these answers; equal answers are equal completions."""
    return [
        judged_rows.completion(f"#### {answer}", index, ids=[10 + int(answer), 1])
        for index, answer in enumerate(answers)
    ]


def balance(rows, *, most=4, one_class=0.0, right=None, seed=0):
    judged = check_pool(OUTCOME_PROMPT, rows)
    if right is not None:
        sides = [[row for row, item in zip(rows, right, strict=True) if item is side]
                 for side in (True, False)]  # fmt: skip
        judged = CheckedProblem(prompt=OUTCOME_PROMPT, right=sides[0], wrong=sides[1])
    return verifier_labels.balance_outcomes(judged, most, one_class, seed)


def weights(outcomes):
    return {
        side: sum(row.weight for row in outcomes if row.right is side) for side in (True, False)
    }


@pytest.mark.parametrize("num_wrong", [1, 2, 9])
def test_right_and_wrong_weigh_the_same_whatever_their_numbers(num_wrong):
    rows = outcome_pool(7, *range(10, 10 + num_wrong))
    result = balance(rows, most=6)
    assert len(result) == min(6, 1 + num_wrong)
    assert weights(result) == pytest.approx({True: 0.5, False: 0.5})


def test_a_side_that_lacks_rows_gives_its_places_to_the_other():
    right = [True] * 5 + [False]
    result = balance(outcome_pool(1, 2, 3, 4, 5, 6), right=right, most=4)
    assert [row.right for row in result] == [True, True, True, False]
    assert [row.weight for row in result] == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    even = balance(outcome_pool(*range(8)), right=[True] * 4 + [False] * 4, most=5)
    assert [row.right for row in even].count(True) == 3


def test_equal_completions_count_once():
    result = balance(outcome_pool(7, 7, 7, 8, 8))
    assert [(row.right, row.completion_ids, row.weight) for row in result] == [
        (True, [17, 1], 0.5),
        (False, [18, 1], 0.5),
    ]


@pytest.mark.parametrize("answers", [(7,), (8, 9, 6)])
def test_a_problem_of_one_class_is_left_out_or_weighs_what_is_asked(answers):
    assert balance(outcome_pool(*answers)) == []
    result = balance(outcome_pool(*answers), one_class=0.3)
    assert len(result) == len(answers)
    assert sum(row.weight for row in result) == pytest.approx(0.3)


def test_the_draw_depends_on_the_seed_alone():
    rows = outcome_pool(*range(9))
    right = [index % 2 == 0 for index in range(9)]
    drawn = [balance(rows, right=right, seed=seed) for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert drawn[2:] != drawn[:2]


def test_what_is_tested_on_is_every_completion_as_sampled():
    judged = [
        check_pool(OUTCOME_PROMPT, rows) for rows in (outcome_pool(7, 8, 7), outcome_pool(8, 8))
    ]
    some, others = verifier_labels.heldout_outcomes(judged)
    assert [row.right for row in some] == [True, True, False]
    assert [row.weight for row in some] == pytest.approx([1 / 3] * 3)
    assert [(row.right, row.weight) for row in others] == [(False, 0.5)] * 2


def test_what_is_learned_from_is_of_problems_that_have_any_and_one_must_have_both():
    both, one_class = (
        check_pool(OUTCOME_PROMPT, rows) for rows in (outcome_pool(7, 8), outcome_pool(7, 7))
    )
    settings = {"max_per_problem": 4, "one_class_weight": 0.0, "seed": 0}
    assert len(verifier_labels.training_outcomes([one_class, both, one_class], **settings)) == 1
    with pytest.raises(ValueError, match="found none of 2"):
        verifier_labels.training_outcomes([one_class] * 2, **settings | {"one_class_weight": 1.0})
