"""The GPU script in its pretended form: it runs, and what needs no GPU is as it should be."""

import copy
from dataclasses import replace

import pytest
import torch

from tests.gpu import measurements, pretended, scales


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


@pytest.mark.slow
def test_the_plan_holds_on_the_real_widths_within_a_tenth():
    few = copy.deepcopy(scales.QWEN3_06B)
    few.num_hidden_layers, few.layer_types = 4, few.layer_types[:4]  # more take as long each
    (row,) = pretended.memory(replace(scales.REAL, trained=few))
    assert row.met, f"{row.value:+.1f} %"
