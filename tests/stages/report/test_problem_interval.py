import numpy as np
import pytest

from stages.algorithms.statistics import calibration
from stages.report.problem_interval import QualityConfig, over_problems

SETTINGS = {
    "num_bins": 4,
    "binning": "equal_mass",
    "length_tolerance": 2,
    "length_edges": [0],
    "num_bootstrap": 300,
    "confidence": 0.95,
}
CONFIG = QualityConfig(**SETTINGS)


def found(values, problems, **settings):
    return over_problems(
        np.array(values, dtype=float), np.array(problems, dtype=int), CONFIG, 0, **settings
    )


def test_rows_of_a_problem_count_once():
    assert found([1, 0, 0, 0, 1], [0, 1, 1, 1, 1]) == {"value": 0.625, "low": 0.25, "high": 1.0}


def test_nothing_measured_is_nothing_told():
    assert found([], []) is None


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_rate_that_is_the_same_on_every_problem_is_not_certain(value):
    # Wilson's interval of 10 of 10, and of 0 of 10.
    ten = found([value] * 10, range(10))
    width = 0.2775
    assert ten["value"] == value
    assert ten["high"] - ten["low"] == pytest.approx(width, abs=1e-4)
    assert found([value] * 10, range(10), is_rate=False) == {
        "value": value, "low": value, "high": value,
    }  # fmt: skip


@pytest.mark.parametrize("edges", [[3, -2], [0, 0], [-8, -2, 15, 3]])
def test_edges_that_do_not_rise_are_refused_before_anything_is_trained(edges):
    with pytest.raises(ValueError, match="expected rising edges, each once, found"):
        QualityConfig(**SETTINGS | {"length_edges": edges})
    rising = sorted(set(edges))
    assert QualityConfig(**SETTINGS | {"length_edges": rising}).length_edges == rising


def test_the_word_names_the_binning():
    assert CONFIG.binned_by() is calibration.equal_mass
    wide = QualityConfig(**SETTINGS | {"binning": "equal_width"})
    assert wide.binned_by() is calibration.equal_width
