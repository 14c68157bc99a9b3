"""The study of a pretrained model: its data, its parts, and a cut of it that runs."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from pipeline_copy import ROOT
from ruamel.yaml import YAML

FOLDER = ROOT / "studies/smollm2"


@pytest.fixture(scope="module")
def study() -> Any:
    spec = importlib.util.spec_from_file_location("smollm2_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    with pytest.raises(ValueError, match="found 1 files of that name"):
        study.read_file("SVAMP.json", tmp_path)


def test_each_part_has_the_rows_before_it_and_all_that_its_own_are_made_from(study):
    def select(part: str) -> dict[str, set[str]]:
        params = study.select_rows(YAML().load(FOLDER / "study.yaml"), part)
        return {table: {*params[table]} for table in study.TABLES}

    before = select("core")
    assert before["policies"] == {"as-is", "sft", "grpo"}
    assert before["rewards"] == {"rule"}
    assert not before["pools"]
    for part in [*study.PARTS][1:]:
        selected = select(part)
        assert all(before[table] <= selected[table] for table in study.TABLES)
        before = selected
    params = YAML().load(FOLDER / "study.yaml")
    assert before == {table: {*params[table]} for table in study.TABLES}
