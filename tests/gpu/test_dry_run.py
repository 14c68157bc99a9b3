"""The GPU script in its dry run passes: nothing of it fails for an import or a shape."""

import pytest

from tests.gpu import __main__ as script


@pytest.mark.slow
def test_every_part_passes_on_small_models_and_a_part_that_fails_is_a_line_of_the_report(
    capfd, monkeypatch
):
    assert script.main("--dry-run") == 0, capfd.readouterr().out
    report = capfd.readouterr().out
    for words in ("compiled, twice | 0 numbers", "recomputed activations | 0 numbers",
                  "own sampler |", "SFT", "GRPO"):  # fmt: skip
        assert words in report

    def broken(scale, device):
        raise KeyError(scale.steps, device.type)

    monkeypatch.setattr(script, "PARTS", (broken,))
    assert script.main("--dry-run") == 1
    assert "broken FAILED: KeyError(1, 'cpu')" in capfd.readouterr().out
