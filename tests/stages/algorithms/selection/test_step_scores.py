import numpy as np
import pytest

from stages.algorithms.selection.step_scores import KINDS, select_beam

last, lowest, product, mean = (KINDS[kind] for kind in ("last", "min", "product", "mean"))
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


def chosen(scores, trees=None, solutions=None, keep=1):
    number = len(scores)
    return select_beam(
        np.array(scores, dtype=np.float64),
        np.array([0] * number if trees is None else trees, dtype=np.int64),
        np.array(range(number) if solutions is None else solutions, dtype=np.int64),
        keep=keep,
    )


def test_the_best_of_one_tree_best_first():
    assert chosen([0.2, 0.9, 0.4, 0.7], keep=2) == [1, 3]
    assert chosen([0.2, 0.9, 0.4, 0.7], keep=4) == [1, 3, 2, 0]
    assert chosen([0.2, 0.9], keep=3) == [1, 0], "no more than there are"


def test_of_equal_scores_the_one_that_stands_first():
    assert chosen([0.5, 0.9, 0.9, 0.5, 0.5], keep=3) == [1, 2, 0]


def test_equal_solutions_share_a_place():
    assert chosen([0.9, 0.2, 0.9, 0.8], solutions=[5, 6, 5, 7], keep=2) == [0, 3]
    assert chosen([0.9, 0.2, 0.9, 0.8], solutions=[5, 6, 8, 7], keep=2) == [0, 2]
    assert chosen([0.9, 0.9, 0.9], solutions=[1, 1, 1], keep=2) == [0]


def test_trees_do_not_compete():
    # The second tree keeps its best although all of the first are better.
    scores, trees = [0.9, 0.8, 0.1, 0.2], [0, 0, 1, 1]
    assert chosen(scores, trees) == [0, 3]
    assert chosen(scores, trees, keep=2) == [0, 1, 3, 2]
    # the same solution has a place in each
    assert chosen(scores, trees, solutions=[1, 2, 2, 1]) == [0, 3]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_definition_tree_by_tree(seed):
    stream = np.random.default_rng(seed)
    number, keep = int(stream.integers(1, 12)), int(stream.integers(1, 4))
    scores = stream.integers(0, 4, number) / 4  # many ties
    trees, solutions = stream.integers(0, 3, number), stream.integers(0, 5, number)
    expected = []
    for tree in sorted(set(trees.tolist())):
        left = [i for i in range(number) if trees[i] == tree]
        for _ in range(keep):
            if left:
                best = max(left, key=lambda i: (scores[i], -i))
                expected.append(best)
                left = [i for i in left if solutions[i] != solutions[best]]
    assert select_beam(scores, trees, solutions, keep=keep) == expected
    # only the order of the scores matters
    assert select_beam(np.exp(scores) - 7, trees, solutions, keep=keep) == expected


def test_a_score_that_is_no_number_is_refused():
    with pytest.raises(AssertionError):
        chosen([0.5, float("nan")])
