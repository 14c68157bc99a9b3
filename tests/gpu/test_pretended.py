"""The GPU script in its pretended form runs, and what needs no GPU is as it should be."""

import torch

from tests.gpu import measurements, scales


def test_small_models_on_the_cpu_pass_every_measurement():
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    result = {}
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        for function in measurements.MEASUREMENTS:
            rows = function(scales.TINY, torch.device("cpu"))
            result |= {row.name: row for row in rows}
    right = [row for row in result.values() if row.unit not in ("tokens/s", "%")]
    assert len(right) == 3
    assert all(row.met for row in right), right
    assert all(row.value > 0 for row in result.values() if row.unit == "tokens/s")
