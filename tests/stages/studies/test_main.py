"""`python -m stages.studies`: a study is a stage of the pipeline's project once it has run."""

import shutil
import subprocess
from pathlib import Path

import pytest
import studied_run
from dvc.repo import Repo
from studied_run import ROOT

from stages.config import read_yaml
from stages.runtime import identity
from stages.studies import __main__ as command
from stages.studies.study import DVC_YAML, STUDY_PARAMS

PIPELINE = {
    "made": {"cmd": "mkdir -p data/rewards && cp input data/rewards/a", "deps": ["input"],
             "outs": ["data/rewards/a"]},
}  # fmt: skip
COPY = "mkdir -p data/studies/{0} && cp {1} data/studies/{0}/metrics.json"
STUDIES = {
    "counted": {
        "foreach": "${counted.rows}",
        "do": {
            "cmd": COPY.format("counted/${item}", "data/rewards/${item}"),
            "deps": ["data/rewards/${item}"],
            "params": [{str(STUDY_PARAMS): ["counted"]}],
            "metrics": ["data/studies/counted/${item}/metrics.json"],
        },
    },
    "paired": {
        "foreach": "${paired.rows}",
        "do": {
            "cmd": COPY.format("paired/${key}", "${item.of}"),
            "deps": ["${item.of}"],
            "metrics": ["data/studies/paired/${key}/metrics.json"],
        },
    },
    "summed": {
        "cmd": COPY.format("summed", "data/studies/counted/a/metrics.json"),
        "deps": ["data/studies/counted"],
        "metrics": ["data/studies/summed/metrics.json"],
    },
    "failing": {"cmd": "exit 3", "deps": ["data/rewards"], "outs": ["data/studies/failing/rows"]},
}


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch):
    """A DVC project, in git, of one stage that no study is among, and definitions of studies."""
    monkeypatch.chdir(tmp_path)
    studied_run.write_yaml(Path("dvc.yaml"), {"stages": PIPELINE})
    studied_run.write_yaml(command.DEFINITIONS, {"stages": STUDIES})
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
def test_a_study_is_seen_when_it_was_run_and_brings_what_it_reads_up_to_date():
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


def test_a_row_of_a_table_is_a_stage_with_its_values():
    assert command.main("paired@first", "--quiet") == 0
    assert listed() == {"made", f"{DVC_YAML}:paired@first"}
    assert Path("data/studies/paired/first/metrics.json").read_text() == '{"n": 1}'


def test_the_key_of_a_study_is_that_of_dvc():
    command.main("counted@a", "--quiet")
    result = identity.dvc_stage(f"{DVC_YAML}:counted@a")
    entry = read_yaml(DVC_YAML.with_suffix(".lock"))["stages"]["counted@a"]
    assert identity.lock_key(entry) == identity.input_key(result)
    assert identity.dvc_stage(f"{DVC_YAML}:another") is None


def test_a_study_that_failed_is_not_seen():
    assert command.main("failing", "--quiet") != 0
    assert not DVC_YAML.exists()
    command.main("counted", "--quiet")
    assert command.main("failing", "--quiet") != 0
    assert listed() == {"made", f"{DVC_YAML}:counted@a"}


def test_a_definition_that_changed_is_taken_over_and_a_row_that_is_gone_is_dropped():
    command.main("counted", "--quiet")
    studied_run.write_yaml(STUDY_PARAMS, {"counted": {"rows": ["b"]}, "paired": {"rows": {}}})
    shutil.copy("input", "data/rewards/b")
    command.main("counted", "--quiet")
    assert listed() == {"made", f"{DVC_YAML}:counted@b"}


@pytest.mark.parametrize("words", [("summed", "--quiet"), ("--check",)])
def test_a_rows_name_that_a_shell_would_read_is_refused_before_dvc_is_called(words):
    studied_run.write_yaml(
        STUDY_PARAMS, {"counted": {"rows": ["a; touch seen"]}, "paired": {"rows": {}}}
    )
    with pytest.raises(ValueError, match=r"counted: 'a; touch seen'"):
        command.main(*words)
    assert not DVC_YAML.exists()
    assert not Path("seen").exists()


def test_names_of_the_pipelines_rows_are_checked_first():
    Path("stages/__init__.py").touch()
    Path("stages/plan.py").write_text("import sys; sys.exit('policies: rename the row')")
    with pytest.raises(ValueError, match="rename the row"):
        command.main("counted", "--quiet")
    assert not DVC_YAML.exists()


def test_commands_with_the_name_of_a_row_check_it_first():
    for study, stage in read_yaml(ROOT / command.DEFINITIONS)["stages"].items():
        first, *rest = stage.get("do", stage)["cmd"].splitlines()
        assert first == "python -m stages.studies --check" or ("$" not in first and not rest), study


@pytest.mark.parametrize("names", [[], ["cuonted"], ["counted@b", "summed"]])
def test_names_that_no_study_has_are_refused_and_nothing_is_written(names):
    with pytest.raises(ValueError, match=r"expected names of studies, found .*counted"):
        command.main(*names)
    assert not DVC_YAML.exists()


def test_the_studies_that_a_study_reads_come_with_it():
    definitions, parameters = (read_yaml(ROOT / path) for path in
                               (command.DEFINITIONS, STUDY_PARAMS))  # fmt: skip
    resolved = {
        name: list(command.resolve_names([name], definitions["stages"], parameters))
        for name in ("search", "checkpoints@ppo", "overoptimization")
    }
    assert resolved == {
        "search": ["search"],
        "checkpoints@ppo": ["checkpoints@ppo"],
        "overoptimization": [
            *(f"checkpoints@{name}" for name in parameters["checkpoints"]["runs"]),
            "overoptimization",
        ],
    }
