import numpy as np
import pytest

from stages.algorithms.statistics.length_buckets import buckets, matched


def test_lengths_match_up_to_the_tolerance_on_both_sides():
    assert matched(np.array([-3, -2, 0, 2, 3]), tolerance=2).tolist() == [
        False, True, True, True, False,
    ]  # fmt: skip


def test_an_edge_begins_its_bucket_and_every_pair_is_in_one():
    differences = np.array([-9, -6, -5, -1, 0, 4, 5, 30])
    found = buckets(differences, [-5, 0, 5])
    assert {name: differences[inside].tolist() for name, inside in found.items()} == {
        "<= -6": [-9, -6],
        "-5 .. -1": [-5, -1],
        "0 .. 4": [0, 4],
        ">= 5": [5, 30],
    }


def test_an_empty_bucket_is_there_and_holds_no_pair():
    found = buckets(np.array([7]), [0, 5])
    assert {name: int(inside.sum()) for name, inside in found.items()} == {
        "<= -1": 0, "0 .. 4": 0, ">= 5": 1,
    }  # fmt: skip


@pytest.mark.parametrize("edges", [[], [2, 1], [1, 1]])
def test_edges_must_ascend(edges):
    with pytest.raises(AssertionError):
        buckets(np.array([0]), edges)
