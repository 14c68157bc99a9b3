"""Dotted names, and the names that MLflow takes."""

from stages.tracking import flat


def test_nested_values_become_dotted_names():
    nested = {"a": {"b": 1, "c": {"d": [1, 2]}}, "e": None}
    assert dict(flat.leaves(nested)) == {"a.b": 1, "a.c.d": [1, 2], "e": None}


def test_only_numbers_are_numbers():
    nested = {"a": {"b": 1, "c": "x", "d": [1]}, "e": True}
    assert flat.numbers(nested) == {"a.b": 1.0, "e": 1.0}


def test_names_keep_their_meaning():
    assert flat.name("pass@4") == "pass_at_4"
    assert flat.name("policies.grpo.mean (all)/loss-1") == "policies.grpo.mean _all_/loss-1"


def test_batches_leave_nothing_out():
    assert list(flat.batches([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
