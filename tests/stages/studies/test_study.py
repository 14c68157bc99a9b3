"""Parameters, outputs and run record of a study."""

import json
from pathlib import Path

import numpy as np
import pytest
import studied_run
from pydantic import Field
from studied_run import ROOT

from stages.config import Params, read_yaml
from stages.runtime import runs
from stages.studies import study as studies
from stages.studies.__main__ import DEFINITIONS
from stages.studies.study import DVC_YAML, STUDY_PARAMS


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_journals_of_a_study_are_in_its_own_folder():
    folder = Path("data/studies/checkpoints/dpo/journal")
    assert runs.journals_of(f"{DVC_YAML}:checkpoints@dpo") == folder
    assert runs.journals_of("train@dpo") == Path("data/journals/train/dpo")


def test_rows_and_plots_take_their_place_together_or_not_at_all():
    with studies.start_study("counted") as study:
        result = study.for_each_seed([3, 5], lambda run, folder: (run.seed, folder.name))
        (study.plots / "a.png").touch()
        study.write({"n": 1}, "# Counted\n")
    assert result == {3: (3, "3"), 5: (5, "5")}
    folder = studies.STUDIES / "counted"
    assert sorted(path.name for path in folder.iterdir()) == [
        "journal", "metrics.json", "plots", "report.md", "rows",
    ]  # fmt: skip
    record = json.loads((folder / "journal/key.json").read_text())
    assert record["stage"] == f"{DVC_YAML}:counted"

    def interrupted() -> None:
        with studies.start_study("counted") as study:
            (study.plots / "b.png").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert [path.name for path in (folder / "plots").iterdir()] == ["a.png"]


class Section(Params):
    """Of a study."""

    n: int = Field(ge=1)


class Config(Params):
    """Of a study."""

    seeds: list[int]
    counted: Section


def test_parameters_are_of_two_files_and_checked_at_once():
    studied_run.write_yaml(Path("params.yaml"), {"seeds": [1], "other": 2})
    studied_run.write_yaml(STUDY_PARAMS, {"counted": {"n": 3}})
    assert studies.load_study_config(Config, "counted").counted.n == 3
    studied_run.write_yaml(Path("params.yaml"), {"seeds": "many"})
    studied_run.write_yaml(STUDY_PARAMS, {"counted": {"n": 0}})
    with pytest.raises(ValueError, match=r"(?s)seeds: .*counted.n: "):
        studies.load_study_config(Config, "counted")


def test_no_section_is_without_a_study_and_no_study_without_its_code():
    content = read_yaml(ROOT / DEFINITIONS)["stages"]
    for name, stage in content.items():
        deps = stage.get("do", stage)["deps"]
        assert (ROOT / f"stages/studies/{name}.py").is_file()
        assert f"data/code/studies/{name}.json" in deps or "data/code" in deps
    assert set(read_yaml(ROOT / STUDY_PARAMS)) <= set(content)


def test_the_interval_of_a_rate_ends_at_0_and_1_and_that_of_a_difference_does_not():
    # Two problems: standard error 1/4, t of one degree of freedom 12.706, so 0.25 ± 3.1766.
    values = np.array([[0.0, 0.5]])
    assert studies.estimate_interval(values, confidence=0.95, is_rate=True) == {
        "value": 0.25, "low": 0.0, "high": 1.0,
    }  # fmt: skip
    difference = studies.estimate_interval(values, confidence=0.95)
    assert (difference["low"], difference["high"]) == pytest.approx((-2.9266, 3.4266), abs=1e-4)


def test_a_rate_that_is_1_but_for_rounding_has_the_interval_of_one_that_is_1():
    # Wilson's interval of 4 of 4 at 95 %: 1 / (1 + 1.96^2 / 4) = 0.5101.
    values = np.array([[1.0, 1.0 - 1.2e-16, 1.0 + 2.3e-16, 1.0]] * 2)
    assert values.min() < 1.0 < values.max()
    interval = studies.estimate_interval(values, confidence=0.95, is_rate=True)
    assert interval == pytest.approx({"value": 1.0, "low": 0.5101, "high": 1.0}, abs=1e-4)
