"""A result is of the versions that constraints.txt pins: others are refused."""

import importlib.metadata
from pathlib import Path

import pytest

from stages.runtime import runs, versions

PINS = "# what it was run with\nnumpy==2.3.5  # a note\ntorch==2.13.0\ntorchvision==9\n"


def test_a_build_counts_as_its_version_unless_the_pin_has_one():
    pins = versions.read_pins(PINS)
    assert pins == {"numpy": "2.3.5", "torch": "2.13.0", "torchvision": "9"}
    assert versions.find_others(pins, {"torch": "2.13.0+cpu", "scipy": "1.0"}) == {}
    assert versions.find_others(pins, {"torch": "2.13.1"}) == {"torch": "2.13.1"}
    others = versions.find_others({"torch": "2.13.0+cu130"}, {"torch": "2.13.0+cpu"})
    assert others == {"torch": "2.13.0+cpu"}


def test_this_environment_has_the_versions_that_are_pinned():
    versions.check()


def test_another_version_is_refused_before_a_stage_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.chdir(tmp_path)
    versions.check()  # nothing is pinned here
    installed = importlib.metadata.version("numpy")
    versions.CONSTRAINTS.write_text("numpy==1.0\nabc==1\n")
    refusal = pytest.raises(ValueError, match=rf"found numpy {installed} \(pinned: 1\.0\)")
    with refusal, runs.start("sample@sft"):
        pytest.fail("no stage works with other packages")
    versions.main()
    assert versions.CONSTRAINTS.read_text() == f"numpy=={installed}\nabc==1\n"
    versions.check()
    capsys.readouterr()
    versions.main()
    assert capsys.readouterr().out == "constraints.txt now has the versions that it had\n"
