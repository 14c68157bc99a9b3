import pytest

from stages.algorithms.selection.step_scores import last, lowest, mean, product

SCORES = [0.9, 0.2, 0.5]


def test_by_hand():
    assert last(SCORES) == 0.5
    assert lowest(SCORES) == 0.2
    assert product(SCORES) == pytest.approx(0.09)
    assert mean(SCORES) == pytest.approx(1.6 / 3)


@pytest.mark.parametrize("aggregate", [last, lowest, mean, product])
def test_of_one_step_all_are_its_score(aggregate):
    assert aggregate([0.3]) == 0.3


def test_a_certain_step_more_changes_minimum_and_product_not_and_the_mean_upwards():
    longer = [1.0, *SCORES]
    assert lowest(longer) == lowest(SCORES)
    assert product(longer) == pytest.approx(product(SCORES))
    assert last(longer) == last(SCORES)
    assert mean(longer) > mean(SCORES)


def test_a_further_doubtful_step_lowers_the_product_alone_below_the_minimum():
    assert product([0.9] * 10) < lowest([0.9] * 10) == mean([0.9] * 10)
