import numpy as np
import pytest
from scipy import stats

from stages.algorithms.statistics.rank_correlation import spearman


def of(first, second):
    return spearman(np.array(first, dtype=float), np.array(second, dtype=float))


def test_worked_by_hand():
    assert of([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)


def test_it_is_scipys_with_and_without_ties():
    stream = np.random.default_rng(0)
    for _ in range(20):
        a, b = stream.integers(0, 5, (2, 9)).astype(float)
        assert of(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)


def test_only_order_counts():
    a, b = [0.3, 2.0, 1.0, 7.0], [5, 1, 2, 3]
    assert of(np.exp(a), b) == of(a, b) == pytest.approx(-of(a, -np.array(b)))


@pytest.mark.parametrize("constant", [[2, 2, 2], [1]])
def test_without_spread_there_is_none(constant):
    assert of(constant, range(len(constant))) is None
