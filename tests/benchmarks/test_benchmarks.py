"""The benchmark against TRL runs."""

import importlib.util

import pytest

from tests.benchmarks.against_trl import METHODS, compare


@pytest.mark.parity
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="pip install -e '.[parity]'")
@pytest.mark.parametrize("method", METHODS)
def test_a_step_of_each_side_is_timed_and_its_work_counted(method):
    result = compare(method, 1)
    assert len(result["ours"]) == len(result["theirs"]) == 1
    assert min(*result["ours"], *result["theirs"], result["rate"]) > 0
    # 64 rows of 80 tokens on average, 0.8 million numbers in matrices, 6 operations for each; of
    # pairs and groups up to eight times as many.
    assert 1e10 < result["operations"][0] < 1e12
