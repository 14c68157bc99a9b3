import random

import pytest

from stages.algorithms.batching import token_budget_batches


def test_a_hand_worked_split():
    # Longest first: 5 (index 1), 4 (2), 3 (0), 2 (3). Budget 10: 2 rows x 5 = 10 fits, a third
    # row would make 15; then 3 and 2 make 2 x 3 = 6.
    assert token_budget_batches([3, 5, 4, 2], 10) == [[1, 2], [0, 3]]


def test_a_row_longer_than_the_budget_has_a_batch_of_its_own():
    assert token_budget_batches([3, 50, 4], 10) == [[1], [2, 0]]


def test_equal_lengths_keep_their_order():
    assert token_budget_batches([2, 2, 2], 4) == [[0, 1], [2]]


def test_nothing_gives_no_batch():
    assert token_budget_batches([], 10) == []


@pytest.mark.parametrize("budget", [1, 7, 40, 10_000])
def test_every_row_is_in_one_batch_and_no_batch_of_several_is_over_budget(budget):
    rng = random.Random(0)
    lengths = [rng.randint(1, 20) for _ in range(100)]
    batches = token_budget_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(100))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget
