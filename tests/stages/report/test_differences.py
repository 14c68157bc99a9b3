import numpy as np
import pytest

from stages.report import differences

SEEDS = [0, 1, 2]


def compare(*tables, seeds=SEEDS):
    family = {str(at): np.asarray(table, dtype=np.float64) for at, table in enumerate(tables)}
    return list(differences.compare(family, seeds, confidence=0.95).values())


def test_a_mean_with_each_seeds_own():
    table = np.array([[1.0, 0.5, 0.0], [0.25, 0.75, 0.5], [0.5, 0.5, 0.5]])
    found = differences.intervals({"a": table}, SEEDS, confidence=0.95)["a"]
    assert found["value"] == 0.5
    assert found["seeds"] == {"0": 0.5, "1": 0.5, "2": 0.5}
    assert 0.0 <= found["low"] < 0.5 < found["high"] <= 1.0


def test_a_share_has_no_interval_beyond_0_and_1_and_a_length_has():
    table = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    found = differences.intervals({"share": table, "length": 9 * table}, SEEDS, confidence=0.95)
    assert (found["share"]["low"], found["share"]["high"]) == (0.0, 1.0)
    assert found["length"]["low"] < 0.0


def test_the_same_difference_everywhere_is_sure():
    (found,) = compare([[0.25, 0.25]] * 3)
    assert (found["value"], found["low"], found["high"]) == (0.25, 0.25, 0.25)
    assert (found["p"], found["significant"], found["detectable"]) == (0.0, True, 0.0)


def test_no_difference_is_not_significant():
    (found,) = compare([[0.0, 0.0]] * 3)
    assert (found["value"], found["p"], found["significant"]) == (0.0, 1.0, False)


def test_three_seeds_that_differ_leave_about_two_degrees_of_freedom():
    # Two problems that differ alike: all spread is of seeds, 0.1, 0.2 and 0.3 around 0.2, so the
    # standard error is 0.1 / sqrt(3), t of 2 degrees 4.303.
    (found,) = compare([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]])
    assert found["degrees"] == 2.0
    assert found["high"] == pytest.approx(0.2 + 4.303 * 0.1 / 3**0.5, abs=1e-4)
    assert not found["significant"]


def test_p_values_of_a_family_are_adjusted_together():
    stream = np.random.default_rng(0)
    tables = [stream.normal(gap, 0.3, (3, 40)) for gap in (0.3, 0.02, 0.0)]
    found = compare(*tables)
    least = min(found, key=lambda one: one["p"])
    assert least["p_holm"] == pytest.approx(3 * least["p"], abs=2e-6)
    assert all(one["p_holm"] >= one["p"] for one in found)
    assert [one["significant"] for one in found] == [True, False, False]


def test_one_seed_has_an_interval_over_problems_and_no_verdict():
    stream = np.random.default_rng(0)
    table = stream.normal(0.3, 0.1, (1, 60))
    (found,) = compare(table, seeds=[7])
    error = table.std(ddof=1) / 60**0.5
    assert found["high"] == pytest.approx(table.mean() + 2.001 * error, abs=1e-4)
    assert found["seeds"] == {"7": pytest.approx(table.mean(), abs=1e-6)}
    assert found["p"] is found["p_holm"] is found["significant"] is found["detectable"] is None


def test_no_comparison_at_all():
    assert differences.compare({}, SEEDS, confidence=0.95) == {}
