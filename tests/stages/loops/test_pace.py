import itertools

import pytest

from stages.loops import epochs, pace
from stages.loops.pace import Pace
from stages.optim import OptimConfig, learning_rate

COSINE = OptimConfig(
    learning_rate=1.0, warmup_share=0.1, schedule="cosine", weight_decay=0.0, max_grad_norm=1.0
)


def metrics(generated, trained):
    return {"tokens/generated": float(generated), "tokens/trained": trained}


def test_a_number_of_steps_is_a_list_that_no_token_shortens():
    schedule = pace.draw(5, 3, 2, seed=0, token_budget=None)
    assert schedule == epochs.draws(5, 3, 2, seed=0)
    assert pace.length(schedule) == 3
    run = Pace(schedule=schedule)
    run.spend(metrics(10**9, 10**9))
    assert run.num_updates(0, per_step=4) == 12
    assert not run.over()


def test_a_budget_has_the_same_batches_and_no_end_of_its_own():
    schedule = pace.draw(5, 3, 2, seed=0, token_budget=100)
    assert pace.length(schedule) is None
    assert list(itertools.islice(schedule, 7)) == epochs.draws(5, 7, 2, seed=0)


def test_the_budget_is_over_with_the_step_that_reaches_it():
    run = Pace(schedule=pace.draw(5, 3, 2, seed=0, token_budget=100))
    run.spend(metrics(30, 20))
    assert not run.over()
    run.spend(metrics(30, 19))
    assert not run.over()
    run.spend(metrics(1, 0))
    assert run.over()


def test_the_steps_to_come_are_taken_to_be_like_those_so_far():
    run = Pace(schedule=pace.draw(5, 3, 2, seed=0, token_budget=1000))
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
    run = Pace(schedule=pace.draw(5, 3, 2, seed=0, token_budget=budget))
    for step, number in enumerate(tokens):
        if run.over():
            break
        shares.append(run.spent / budget)
        run.spend(metrics(number, 0))
        rates.append(learning_rate(COSINE, step, run.num_updates(step, per_step=1)))
    assert run.over()
    assert rates[-1] < 0.1
    assert max(rates) == pytest.approx(
        rates[shares.index(next(s for s in shares if s >= 0.1))], abs=0.05
    )
    after = [rate for rate, share in zip(rates, shares, strict=True) if share > 0.15]
    assert after == sorted(after, reverse=True)
