"""Lengths of completions."""

import numpy as np
import pytest
from quality_config import QUALITY

from stages.reports import lengths
from stages.reports.policy_samples import PolicySamples


def policy(tokens, right, cut=None):
    right = np.asarray(right, dtype=np.bool_)
    cut = np.zeros_like(right) if cut is None else np.asarray(cut, dtype=np.bool_)
    return PolicySamples(problems=[], right=right, tokens=np.asarray(tokens), cut=cut, greedy=[],
                         greedy_right=[])  # fmt: skip


def test_buckets_part_no_length_and_leave_nothing_out():
    tokens = np.array([1] * 50 + [2] * 30 + [3] * 20)
    edges = lengths.bucket_edges(tokens)
    assert edges == [1, 2, 3, 4]
    many = np.random.default_rng(0).integers(5, 300, 10_000)
    edges = lengths.bucket_edges(many)
    counts, _ = np.histogram(many, bins=edges)
    assert counts.sum() == len(many)
    assert np.abs(counts / len(many) - 0.2).max() < 0.02
    assert lengths.bucket_edges(np.array([4, 4])) == [4, 5]


def test_numbers_by_hand():
    one = policy([[2, 4, 4, 6], [3, 3, 3, 9]], [[0, 1, 0, 1], [1, 1, 1, 1]],
                 [[0, 0, 0, 0], [0, 0, 0, 1]])  # fmt: skip
    found = lengths.measure({"x": one}, QUALITY, seed=0)
    numbers = found["policies"]["x"]
    assert numbers["mean_tokens"]["value"] == (4 + 4.5) / 2
    assert numbers["cut"]["value"] == 0.125
    assert numbers["quantiles"][2] == 3.5
    # right 4 and 6 against wrong 2 and 4: above, tie, above, above
    assert numbers["right_is_longer"]["value"] == pytest.approx(3.5 / 4)
    shares = [bucket["share"] for bucket in numbers["buckets"]]
    assert sum(shares) == pytest.approx(1)
    edges = [(low, high) for low, high in found["buckets"]]
    inside = edges.index(next(span for span in edges if span[0] <= 4 <= span[1]))
    assert numbers["buckets"][inside]["accuracy"]["value"] == 0.5


def test_where_a_policy_has_no_such_length_there_is_no_accuracy():
    found = lengths.measure(
        {"short": policy([[1, 1]], [[1, 0]]), "long": policy([[9, 9]], [[1, 1]])}, QUALITY, seed=0
    )
    assert found["policies"]["short"]["buckets"][-1] == {"share": 0.0, "accuracy": None}
    assert found["policies"]["long"]["right_is_longer"] is None
