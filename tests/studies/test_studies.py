"""Studies: their command, parameters, outputs and intervals, and the copies that some train in."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import studied_run
from dvc.repo import Repo
from studied_run import CASES, ROOT

from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml
from stages.rows import ENTRY_POINTS
from stages.runtime import identity
from studies import __main__ as command
from studies import copies
from studies import study as studies
from studies.copies import Command
from studies.study import DVC_YAML, STUDY_PARAMS


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_rows_and_plots_take_their_place_together_or_not_at_all():
    with studies.start_study("counted") as study:
        result = study.for_each_seed([3, 5], lambda run, folder: (run.seed, folder.name))
        (study.plots / "a.png").touch()
        study.write({"n": 1}, "# Counted\n")
    assert result == {3: (3, "3"), 5: (5, "5")}
    folder = studies.STUDIES / "counted"
    names = ["journal", "metrics.json", "plots", "report.md", "rows"]
    assert sorted(path.name for path in folder.iterdir()) == names
    record = json.loads((folder / "journal/key.json").read_text())
    assert record["stage"] == f"{DVC_YAML}:counted"
    with suppress(KeyboardInterrupt), studies.start_study("counted") as study:
        (study.plots / "b.png").touch()
        raise KeyboardInterrupt
    assert [path.name for path in (folder / "plots").iterdir()] == ["a.png"]


def test_every_study_has_its_code_and_checks_a_rows_name_before_a_command_with_it():
    content = read_yaml(ROOT / command.DEFINITIONS)["stages"]
    for name, stage in content.items():
        definition = stage.get("do", stage)
        assert (ROOT / f"studies/{name}.py").is_file()
        traced = f"data/studies/trace_code/{name}.json" in definition["deps"]
        assert traced == (name != "trace_code")
        first, *rest = definition["cmd"].splitlines()
        assert first == "python -m studies --check" or ("$" not in first and not rest), name
    assert set(read_yaml(ROOT / STUDY_PARAMS)) <= set(content)


def test_intervals_of_rates_by_hand():
    # two problems have a squared standard error of 1/16, and 3/64 for what is rare
    rate = studies.estimate_interval(np.array([[0.0, 0.5]]), confidence=0.95, is_rate=True)
    assert rate == {"value": 0.25, "low": 0.0, "high": 1.0}
    # 20 of 20: 1 - t of 19 degrees, 2.093024, times the root of 3 by 20
    always = studies.estimate_interval(np.ones((2, 20)), confidence=0.95, is_rate=True)
    assert always == pytest.approx({"value": 1.0, "low": 0.8187, "high": 1.0}, abs=1e-4)


# `python -m studies`: a study is a stage of the project once it has run


@pytest.fixture
def repository(tmp_path, folder):
    """A DVC project, in git, of one stage that no study is among, and definitions of studies."""
    studied_run.write_yaml(Path("dvc.yaml"), {"stages": CASES["pipeline"]})
    studied_run.write_yaml(command.DEFINITIONS, {"stages": CASES["definitions"]})
    paired = {"rows": {"first": {"of": "data/rewards/a"}, "second": {"of": "input"}}}
    studied_run.write_yaml(STUDY_PARAMS, {"counted": {"rows": ["a"]}, "paired": paired})
    shutil.copy(ROOT / ".gitignore", tmp_path)
    Path("input").write_text('{"n": 1}')
    subprocess.run(["git", "init", "--quiet"], check=True)
    Repo.init(".").close()


def listed() -> set[str]:
    """Names of the stages that every command of DVC sees."""
    with Repo(".") as repo:
        return {stage.addressing for stage in repo.index.stages}


@pytest.mark.slow
def test_a_study_is_seen_when_it_was_run_and_brings_what_it_reads_up_to_date(repository):
    assert listed() == {"made"}
    assert command.main("summed", "--quiet") == 0
    assert listed() == {"made", f"{DVC_YAML}:counted@a", f"{DVC_YAML}:summed"}
    assert Path("data/studies/summed/metrics.json").read_text() == '{"n": 1}'
    entry = read_yaml(DVC_YAML.with_suffix(".lock"))["stages"]["counted@a"]
    assert entry["params"] == {str(STUDY_PARAMS): {"counted": {"rows": ["a"]}}}
    with Repo(".") as repo:
        assert repo.status() == {}
        assert repo.metrics.show()[""]["data"]
        shutil.rmtree("data/studies")
        assert repo.checkout()["stats"]["added"] > 0
    Path("input").write_text('{"n": 2}')
    assert command.main("summed", "--quiet") == 0
    assert Path("data/studies/summed/metrics.json").read_text() == '{"n": 2}'


def test_rows_are_stages_with_keys_of_dvc_as_long_as_their_study_has_them(repository, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["stage"])
    assert command.main("failing", "--quiet") != 0
    assert not DVC_YAML.exists()
    assert command.main("counted@a", "paired@first", "--quiet") == 0
    assert command.main("failing", "--quiet") != 0
    assert listed() == {"made", f"{DVC_YAML}:counted@a", f"{DVC_YAML}:paired@first"}
    assert Path("data/studies/paired/first/metrics.json").read_text() == '{"n": 1}'
    result = identity.dvc_stage(f"{DVC_YAML}:counted@a")
    entry = read_yaml(DVC_YAML.with_suffix(".lock"))["stages"]["counted@a"]
    assert identity.lock_key(entry) == identity.input_key(result)
    assert identity.dvc_stage(f"{DVC_YAML}:another") is None
    # a definition that changed is taken over, and a row that is gone is dropped
    studied_run.write_yaml(STUDY_PARAMS, {"counted": {"rows": ["b"]}, "paired": {"rows": {}}})
    shutil.copy("input", "data/rewards/b")
    command.main("counted", "--quiet")
    assert listed() == {"made", f"{DVC_YAML}:counted@b"}


@pytest.mark.parametrize("words", [("summed", "--quiet"), ("--check",)])
def test_a_rows_name_that_a_shell_would_read_is_refused_before_dvc_is_called(words, repository):
    studied_run.write_yaml(
        STUDY_PARAMS, {"counted": {"rows": ["a; touch seen"]}, "paired": {"rows": {}}}
    )
    with pytest.raises(ValueError, match=r"counted: 'a; touch seen'"):
        command.main(*words)
    assert not DVC_YAML.exists()
    assert not Path("seen").exists()


def test_names_of_the_pipelines_rows_are_checked_first(repository):
    Path("stages").mkdir()
    Path("stages/__init__.py").touch()
    Path("stages/plan.py").write_text("import sys; sys.exit('policies: rename the row')")
    with pytest.raises(ValueError, match="rename the row"):
        command.main("counted", "--quiet")
    assert not DVC_YAML.exists()


@pytest.mark.parametrize("names", [[], ["cuonted"], ["counted@b", "summed"]])
def test_names_that_no_study_has_are_refused_and_nothing_is_written(names, repository):
    with pytest.raises(ValueError, match=r"expected names of studies, found .*counted"):
        command.main(*names)
    assert not DVC_YAML.exists()


def test_the_studies_that_a_study_reads_come_with_it():
    stages, parameters = (read_yaml(ROOT / command.DEFINITIONS)["stages"],
                          read_yaml(ROOT / STUDY_PARAMS))  # fmt: skip
    runs = [f"checkpoints@{name}" for name in parameters["checkpoints"]["runs"]]
    for name, before in {"search": [], "checkpoints@ppo": [], "overoptimization": runs}.items():
        resolved = command.resolve_names([name], stages, parameters)
        assert resolved == ["trace_code", *before, name]


# Copies of a run, in which some studies train again

PLAN = CASES["plan"]
STAND_IN = """
import os, pathlib, sys
out = pathlib.Path("data/samples") / sys.argv[2]
if sys.argv[2] == "broken":
    sys.exit("this is why")
out.mkdir(parents=True)
named = ("DVC_STAGE", "DVC_ROOT")
(out / "seen").write_text(" ".join(os.environ.get(name, "none") for name in named))
"""


@pytest.fixture
def stand_in(tmp_path, folder):
    """A run whose only stage is a stand-in that writes down its environment."""
    studied_run.write_yaml(PARAMS_PATH, {"seeds": [0, 1], "model": {"path": None}})
    studied_run.write_yaml(PRESETS_PATH, {"dpo": {"beta": 0.5}})
    for name in ("__init__", "plan", "__main__"):
        Path(f"stages/{name}.py").write_text(STAND_IN if name == "__main__" else "", "utf-8")
    (tmp_path / "data/prompts").mkdir(parents=True)
    (tmp_path / "data/pairs/verifier").mkdir(parents=True)


def test_rows_come_after_what_they_are_made_from():
    assert copies.list_needed_rows(PLAN, "policies", "ppo") == [
        ("policies", "sft"), ("pools", "sft"), ("pairs", "verifier"), ("rewards", "preference"),
        ("policies", "ppo"),
    ]  # fmt: skip
    assert copies.list_needed_rows(PLAN, "policies", "sft") == [("policies", "sft")]
    assert copies.list_needed_rows(PLAN, "policies", "base") == []


@pytest.mark.parametrize("row", CASES["commands"])
def test_the_command_of_a_row_is_that_of_dvc(row):
    # a child dies with the study only if `runtime/process` knows it by DVC's name of its stage
    table, name = row.split("/")
    made = copies.make_row_command(table, name, PLAN[table][name])
    entry_point, words, output, stage = CASES["commands"][row]
    assert made == (entry_point, tuple(words or made.words), output, stage)
    assert entry_point in ENTRY_POINTS
    stages = read_yaml(ROOT / "dvc.yaml")["stages"]
    assert stages[stage.partition("@")[0]]["foreach"] == f"${{{table}}}"


def test_a_copy_has_its_own_numbers_and_shares_the_rest(tmp_path, stand_in):
    copy = copies.make_copy(tmp_path / "copy", share=["pairs/verifier"], changes={"seeds": [1]},
                            presets={"budgeted": {"beta": 0.1}})  # fmt: skip
    assert read_yaml(copy.path / PARAMS_PATH) == {"seeds": [1], "model": {"path": None}}
    assert set(read_yaml(copy.path / PRESETS_PATH)) == {"dpo", "budgeted"}
    assert read_yaml(PARAMS_PATH)["seeds"] == [0, 1]
    assert (copy.data / "pairs/verifier").resolve() == tmp_path / "data/pairs/verifier"
    assert not (copy.path / "stages/plan.py").exists()


def test_a_stage_of_a_copy_runs_once_and_says_why_it_fails(tmp_path, monkeypatch, stand_in):
    monkeypatch.setitem(os.environ, "DVC_ROOT", "elsewhere")
    copy = copies.make_copy(tmp_path / "copy")
    copy.run(copies.make_sample_command("sft"))
    seen = copy.data / "samples/sft/seen"
    assert seen.read_text() == "sample@sft none"
    seen.write_text("kept")
    copies.make_copy(tmp_path / "copy").run(copies.make_sample_command("sft"))
    assert seen.read_text() == "kept"
    with pytest.raises(RuntimeError, match=r"sample@broken failed in .*\n.*this is why"):
        copy.run(Command("sample", ("broken",), "samples/broken", "sample@broken"))
