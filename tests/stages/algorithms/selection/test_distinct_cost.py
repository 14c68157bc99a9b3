import itertools

import numpy as np
import pytest

from stages.algorithms.selection.distinct_cost import distinct_cost


def test_the_hand_worked_three():
    assert distinct_cost([2, 1], [10.0, 7.0], n=2) == pytest.approx(44 / 3)
    assert distinct_cost([2, 1], [10.0, 7.0], n=1) == pytest.approx(9.0)
    assert distinct_cost([2, 1], [10.0, 7.0], n=3) == 17.0


@pytest.mark.parametrize("seed", range(10))
def test_it_equals_the_enumeration_of_all_subsets(seed):
    stream = np.random.default_rng(seed)
    values = stream.integers(0, 4, int(stream.integers(1, 9))).tolist()
    kinds = sorted(set(values))
    cost = {kind: float(stream.integers(1, 50)) for kind in kinds}
    counts, costs = [values.count(kind) for kind in kinds], [cost[kind] for kind in kinds]
    for n in range(1, len(values) + 1):
        sums = [
            sum(cost[kind] for kind in {values[i] for i in subset})
            for subset in itertools.combinations(range(len(values)), n)
        ]
        assert distinct_cost(counts, costs, n=n) == pytest.approx(np.mean(sums), abs=1e-12)


def test_if_all_differ_it_grows_with_n_and_if_none_does_it_stays():
    assert [distinct_cost([1] * 5, [3.0] * 5, n=n) for n in (1, 4)] == pytest.approx([3.0, 12.0])
    assert [distinct_cost([5], [3.0], n=n) for n in (1, 4)] == [3.0, 3.0]
