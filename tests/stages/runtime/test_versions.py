"""A result is of the versions that constraints.txt pins: mismatches are refused."""

import importlib.metadata
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages.planning import checkup
from stages.planning.jobs import Plan
from stages.runtime import ranks, runs, versions

ROOT = Path(__file__).parents[3]
ROWS = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))
INDIFFERENT = {
    "dill", "filelock", "fsspec", "httpx", "huggingface-hub", "multiprocess", "networkx",
    "packaging", "setuptools", "tqdm", "typer", "typing-extensions", "xxhash",
}  # fmt: skip
"""What reads and writes bytes as they are, shows progress, or names files of a cache."""


@pytest.mark.parametrize("row", ROWS["pins"])
def test_a_build_counts_as_its_version_unless_the_pin_has_one(row):
    pins, installed, expected = row["pins"], row["installed"], row["other"]
    assert versions.find_mismatches(versions.read_pins(pins), installed) == expected
    fixed = versions.pin(pins, {versions.PIN_OF.get(n, n): v for n, v in expected.items()})
    assert versions.find_mismatches(versions.read_pins(fixed), installed) == {}


def test_each_package_that_computes_or_reads_data_is_compared_and_pinned_as_it_is_installed():
    pinned = versions.read_pins((ROOT / versions.CONSTRAINTS).read_text())
    assert {versions.PIN_OF.get(name, name) for name in versions.PACKAGES} <= pinned.keys()
    versions.check(ROOT / versions.CONSTRAINTS)
    for requiring in ("torch", "transformers", "datasets", "math-verify"):
        names = {
            versions.normalize(re.split(r"[^\w.-]", requirement)[0])
            for requirement in importlib.metadata.requires(requiring) or ()
            if "extra ==" not in requirement and "==" not in requirement.partition(";")[0]
        }
        assert names - {*versions.PACKAGES} <= INDIFFERENT, requiring


def test_another_version_is_refused_before_a_stage_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    versions.check()  # nothing is pinned here
    with pytest.raises(ValueError, match=r"constraints\.txt"):
        versions.main()
    installed = importlib.metadata.version("numpy")
    versions.CONSTRAINTS.write_text("numpy==1.0\nabc==1\npytest==1.0\n")
    for rank in (0, 1):  # the second of torchrun's processes has no preflight
        monkeypatch.setattr(ranks, "read_torchrun_rank", lambda rank=rank: rank)
        with pytest.raises(ValueError, match=f"numpy {installed}"), runs.start("sample@sft"):
            pytest.fail("no stage works with other packages")
    plan = Plan(content={"engine": "transformers"}, presets={}, rows={}, data=None)
    (problem,) = checkup.find_software_problems(plan, {"vllm": "not installed"})
    assert f"numpy {installed}" in problem
    versions.main()
    pins = versions.read_pins(versions.CONSTRAINTS.read_text())
    assert pins == {"numpy": installed, "abc": "1", "pytest": importlib.metadata.version("pytest")}
    versions.check()
