from itertools import chain

import pytest
from tiny_rollouts import draws

from stages.loops import epochs


def test_every_row_once_an_epoch_and_the_smaller_last_batch_is_kept():
    steps = epochs.batches(7, 2, 3, seed=0)
    assert [len(step) for step in steps] == [3, 3, 1, 3, 3, 1]
    first, second = list(chain(*steps[:3])), list(chain(*steps[3:]))
    assert sorted(first) == sorted(second) == list(range(7))
    assert first != second, "a fresh shuffle each"


def test_the_order_is_a_function_of_the_seed_and_more_epochs_do_not_change_the_first():
    assert epochs.batches(7, 1, 3, seed=0) == epochs.batches(7, 4, 3, seed=0)[:3]
    assert epochs.batches(7, 1, 3, seed=0) != epochs.batches(7, 1, 3, seed=1)


def test_draws_are_full_batches_that_pass_over_all_rows_before_any_comes_again():
    steps = draws(5, num_steps=5, batch_size=3, seed=0)
    assert [len(step) for step in steps] == [3] * 5
    order = list(chain(*steps))
    for start in (0, 5, 10):
        assert sorted(order[start : start + 5]) == list(range(5))


@pytest.mark.parametrize("seed", range(20))
def test_no_row_is_twice_in_a_batch_even_where_two_passes_meet(seed):
    for step in draws(5, num_steps=10, batch_size=3, seed=seed):
        assert len(set(step)) == 3


def test_fewer_rows_than_a_batch_are_refused():
    with pytest.raises(ValueError, match="a step may need 4 prompts, the split train has 3: lower"):
        draws(3, num_steps=1, batch_size=4, seed=0)


def test_a_budget_ends_with_the_step_that_reaches_it_in_whatever_epoch():
    lengths = [5, 1, 1, 1, 4]
    long = epochs.batches(5, 9, 2, seed=0)
    for budget in (1, 6, 12, 13, 40):
        steps = epochs.batches_within(lengths, budget, 2, seed=0)
        spent = [sum(lengths[row] for row in step) for step in steps]
        assert sum(spent[:-1]) < budget <= sum(spent)
        assert steps == long[: len(steps)]
