import json
from pathlib import Path

import datasets
import pytest

from stages.records.problems import BadRow, Problem
from stages.sources import hub

COLUMNS = {"question": "text", "answer": "label", "solution": "why", "id": None}
ROWS = [
    {"text": "2+2?", "label": "4", "why": "2+2=4\n#### 4"},
    {"text": "3+3?", "label": "6", "why": None},
    {"text": "", "label": "6", "why": None},
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def config(folder: Path, *, test_split: str | None = "test", **columns: str) -> hub.Config:
    return hub.Config.model_validate(
        {
            "kind": "hub",
            "path": str(folder),
            "name": None,
            "revision": None,
            "train_split": "train",
            "test_split": test_split,
            "columns": COLUMNS | columns,
            "licence": "CC0-1.0",
        }
    )


@pytest.fixture(params=["json", "parquet"])
def folder(request, tmp_path) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    for split, rows in (("train", ROWS), ("test", ROWS[1:2])):
        if request.param == "json":
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
        else:
            datasets.Dataset.from_list(rows).to_parquet(str(folder / f"{split}.parquet"))
    return folder


def test_columns_are_mapped_and_the_test_split_is_kept(folder):
    rows = list(hub.problems(config(folder)))
    assert rows[0] == Problem(
        id="train-000001",
        question="2+2?",
        answer="4",
        solution="2+2=4\n#### 4",
        split="train",
        line=1,
    )
    assert isinstance(rows[1], Problem)
    assert rows[1].solution is None
    assert isinstance(rows[2], BadRow)
    assert (rows[2].file, rows[2].line) == ("train", 3)
    assert rows[2].reason.startswith("empty text")
    assert isinstance(rows[3], Problem)
    assert (rows[3].id, rows[3].split) == ("test-000001", "test")


def test_without_a_test_split_nothing_is_fixed(folder):
    rows = list(hub.problems(config(folder, test_split=None)))
    assert len(rows) == 3
    assert {row.split for row in rows if isinstance(row, Problem)} == {None}


def test_a_wrong_column_is_every_rows_reason(folder):
    rows = list(hub.problems(config(folder, question="prompt")))
    assert all(isinstance(row, BadRow) for row in rows)
    assert isinstance(rows[0], BadRow)
    assert "'prompt' is not among the row's columns (label, text, why)" in rows[0].reason


def test_a_split_that_does_not_exist_is_a_clear_error(folder):
    with pytest.raises(ValueError, match=r"split 'validation' of the folder .*data\.source"):
        list(hub.problems(config(folder, test_split="validation")))


def test_a_data_set_that_cannot_be_reached_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"hub data set 'nobody/nothing'.*save the data set to a"):
        list(hub.problems(config(Path("nobody/nothing"))))
