from itertools import chain

import pytest
from tiny_rollouts import draws

from stages.loops import epochs
from stages.loops.epochs import Pace
from stages.optim import OptimConfig, schedule_learning_rate


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


COSINE = OptimConfig(
    learning_rate=1.0, warmup_share=0.1, schedule="cosine", weight_decay=0.0, max_grad_norm=1.0
)


def metrics(generated, trained):
    return {"tokens/generated": float(generated), "tokens/trained": trained}


def test_a_number_of_steps_is_one_that_no_token_shortens():
    run = Pace(num_steps=3, budget=None)
    run.spend(metrics(10**9, 10**9))
    assert run.num_updates(0, per_step=4) == 12
    assert not run.over()


def test_the_budget_is_over_with_the_step_that_reaches_it():
    run = Pace(num_steps=3, budget=100)
    run.spend(metrics(30, 20))
    assert not run.over()
    run.spend(metrics(30, 19))
    assert not run.over()
    run.spend(metrics(1, 0))
    assert run.over()


def test_the_steps_to_come_are_taken_to_be_like_those_so_far():
    run = Pace(num_steps=3, budget=1000)
    run.spend(metrics(50, 50))
    assert run.num_updates(0, per_step=2) == 20  # a tenth of the budget in one step of 2 updates
    run.spend(metrics(200, 100))
    assert run.num_updates(1, per_step=2) == 10  # 400 in two steps: 5 steps
    run.spend(metrics(400, 400))
    assert run.num_updates(2, per_step=2) == 6, "over the budget: this step is the last"


@pytest.mark.parametrize("tokens", [[100] * 20, [20 * step + 10 for step in range(20)]])
def test_the_rate_warms_up_and_falls_with_the_share_of_the_budget(tokens):
    # however completions grow: 2 sin² of half of what is left after the warm-up of a tenth
    budget, rates, shares = 2000, [], []
    run = Pace(num_steps=3, budget=budget)
    for step, number in enumerate(tokens):
        if run.over():
            break
        shares.append(run.spent / budget)
        run.spend(metrics(number, 0))
        rates.append(schedule_learning_rate(COSINE, step, run.num_updates(step, per_step=1)))
    assert run.over()
    assert rates[-1] < 0.1
    assert max(rates) == pytest.approx(
        rates[shares.index(next(s for s in shares if s >= 0.1))], abs=0.05
    )
    after = [rate for rate, share in zip(rates, shares, strict=True) if share > 0.15]
    assert after == sorted(after, reverse=True)
