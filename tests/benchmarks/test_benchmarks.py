"""The benchmarks run, and their tables are those worked by hand."""

import importlib.util

import pytest

from tests.benchmarks.against_trl import compare
from tests.benchmarks.forecasts import format_table


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="pip install -e '.[parity]'")
def test_a_step_of_each_side_is_timed_and_its_work_counted():
    result = compare("sft", 1)
    assert len(result["ours"]) == len(result["theirs"]) == 1
    assert min(*result["ours"], *result["theirs"], result["rate"]) > 0
    # 64 rows of 80 tokens on average, 0.8 million numbers in matrices, 6 operations for each.
    assert 1e10 < result["operations"][0] < 1e11


def test_a_forecast_is_near_within_a_factor_of_one_and_a_half_either_way():
    lines = format_table({"a": (20.0, 30.0), "b": (150.0, 100.0), "c": (10.0, 20.0)}).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:6]]
    assert rows == [["b", "150", "100", "1.50"], ["a", "20", "30", "0.67"],
                    ["c", "10", "20", "0.50"], ["all", "180", "150", "1.20"]]  # fmt: skip
    assert lines[-1].startswith("2 of 3 ")
    assert lines[-1].endswith(" 0.67.")
