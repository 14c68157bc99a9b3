"""The choice of a temperature, the parts of a gain, and rows of another run."""

import numpy as np
import pytest

from stages.records import lines
from stages.records.temperatures import TemperatureResult
from stages.report import sharpening
from stages.report.sharpening import PolicyTemperatures


def test_the_most_accurate_temperature_over_seeds_and_of_equals_the_highest():
    dev = {
        1.0: np.array([[0.5, 0.5], [0.5, 0.5]]),
        0.5: np.array([[1.0, 1.0], [0.25, 0.75]]),
        0.0: np.array([[0.5, 1.0], [1.0, 0.5]]),
    }
    # 0.5, 0.75 and 0.75; the second seed alone would have chosen 0.
    assert sharpening.choose_temperature(dev) == 0.5
    assert sharpening.choose_temperature({1.0: dev[1.0], 0.0: dev[0.0]}) == 0.0


def policy(sampled, best, lenient):
    return PolicyTemperatures(
        sampled=1.0, dev={1.0: np.zeros((1, 1)), 0.25: np.ones((1, 1))},
        test={1.0: np.array([[sampled]]), 0.25: np.array([[best]])},
        lenient={1.0: np.array([[1.0]]), 0.25: np.array([[lenient]])},
    )  # fmt: skip


def test_a_gain_by_hand():
    parts = sharpening.split_gain(policy(0.5, 0.75, 0.875), policy(0.875, 1.0, 1.0))
    assert {name: table.item() for name, table in parts.items()} == {
        "sharpening": 0.125, "format": 0.125, "rest": 0.125,
    }  # fmt: skip


def test_a_narrower_distribution_alone_is_all_sharpening():
    parts = sharpening.split_gain(policy(0.5, 0.75, 0.75), policy(0.75, 0.75, 0.75))
    assert {name: table.item() for name, table in parts.items()} == {
        "sharpening": 0.25, "format": 0.0, "rest": 0.0,
    }  # fmt: skip


def test_rows_of_other_problems_are_refused(tmp_path):
    row = TemperatureResult(
        id="a", file="test", split="test", temperature=1.0, num_samples=2, accuracy=0.5,
        strict=0.5, lenient=1.0,
    )  # fmt: skip
    lines.write_lines(tmp_path / "0/temperatures.jsonl", [row])
    result = sharpening.read_temperatures(tmp_path, [0], ["a"])
    assert (result.sampled, result.test[1.0].tolist()) == (1.0, [[0.5]])
    with pytest.raises(ValueError, match="2 test problems"):
        sharpening.read_temperatures(tmp_path, [0], ["a", "b"])
