"""The benchmark runs: a counted step of each side of the method that is fastest to compare."""

import importlib.util

import pytest

from tests.benchmarks.against_trl import compare


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="pip install -e '.[parity]'")
def test_a_step_of_each_side_is_timed_and_its_work_counted():
    result = compare("sft", 1)
    assert len(result["ours"]) == len(result["theirs"]) == 1
    assert min(*result["ours"], *result["theirs"], result["rate"]) > 0
    # 64 rows of 80 tokens on average, 0.8 million numbers in matrices, 6 operations for each.
    assert 1e10 < result["operations"][0] < 1e11
