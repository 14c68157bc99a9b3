"""The GPU script in its dry run passes: nothing of it fails for an import or a shape."""

import pytest
from vllm_installed import needs_vllm

from tests.gpu import __main__ as script
from tests.gpu.measurements import PARTS, Measurement


@pytest.mark.slow
def test_every_part_passes_on_small_models_on_the_cpu(capfd):
    assert script.main(["--dry-run"]) == 0, capfd.readouterr().out
    report = capfd.readouterr().out
    for words in ("compiled, twice | 0 numbers", "recomputed activations | 0 numbers",
                  "packed rows, twice | 0 numbers", "own sampler |", "RL update", "GRPO",
                  "two processes", "side by side", "on the second GPU"):  # fmt: skip
        assert words in report
    assert "FAILED" not in report
    assert sum(limit for _, limit in PARTS.values()) <= 680  # and the bytecode before


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize(("part", "words"), [("rollouts", ", vLLM"), ("reinforcement", "sleep")])
def test_parts_with_vllm_pass_on_small_models_on_the_cpu(part, words):
    rows = list(script.measure(part, dry=True))
    assert any(getattr(row, "name", "").endswith(words) for row in rows), rows
    assert not any(row.met is False for row in rows if isinstance(row, Measurement)), rows


@pytest.mark.slow
def test_a_part_that_fails_is_a_line_of_the_report_and_the_others_go_on():
    (line,) = script.measure_apart("no such part", 30, dry=True)
    assert "FAILED" in line
    assert "KeyError" in line
    report = script.format_report("A GPU", [Measurement(name="a", value=2e3, unit="x"), line])
    assert "| a | 2,000 x |  |  |" in report
    assert "no such part FAILED" in report
