import json
from pathlib import Path

import datasets
import pytest

from stages.records.problems import BadRow, Problem
from stages.sources import problem_files


def gsm8k(folder: Path) -> problem_files.Gsm8k:
    return problem_files.Gsm8k(kind="gsm8k", path=str(folder), revision=None, licence="MIT")


def write(folder: Path, split: str, *rows: dict[str, object]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


def test_calculator_annotations_are_taken_out_and_splits_kept(tmp_path):
    write(
        tmp_path,
        "train",
        {"question": "How many?", "answer": "48/2 = <<48/2=24>>24 clips.\n#### 1,024"},
    )
    write(tmp_path, "test", {"question": "And now?", "answer": "#### 3"})
    assert list(gsm8k(tmp_path).problems()) == [
        Problem(
            id="train-00001",
            question="How many?",
            answer="1,024",
            solution="48/2 = 24 clips.\n#### 1,024",
            split="train",
            line=1,
        ),
        Problem(
            id="test-00001",
            question="And now?",
            answer="3",
            solution="\n#### 3",
            split="test",
            line=1,
        ),
    ]


@pytest.mark.parametrize("answer", ["24 clips", "####", "24 clips\n####  "])
def test_an_answer_without_its_mark_is_quarantined(tmp_path, answer):
    write(tmp_path, "train", {"question": "How many?", "answer": answer})
    write(tmp_path, "test", {"question": "And now?", "answer": "#### 3"})
    bad, _ = gsm8k(tmp_path).problems()
    assert isinstance(bad, BadRow)
    assert (bad.file, bad.line) == ("train.jsonl", 1)
    assert bad.reason.startswith("answer does not parse")


def test_a_missing_file_is_named(tmp_path):
    write(tmp_path, "train", {"question": "How many?", "answer": "#### 3"})
    with pytest.raises(ValueError, match=r"test\.jsonl: expected a file"):
        list(gsm8k(tmp_path).problems())


ROW = {"question": " 2+2? ", "answer": "4"}


@pytest.fixture
def read(tmp_path):
    def read(*rows: dict[str, object]) -> list[Problem | BadRow]:
        path = tmp_path / "mine.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        config = problem_files.JsonLines(kind="json_lines", path=str(path), licence="CC0-1.0")
        return list(config.problems())

    return read


def test_every_field_is_read(read):
    row = {"id": 7, "question": "2+2?", "answer": 4, "solution": "2+2=4\n#### 4", "split": "test"}
    assert read(row) == [
        Problem(
            id="7",
            question="2+2?",
            answer="4",
            solution="2+2=4\n#### 4",
            split="test",
            line=1,
        )
    ]


def test_what_is_optional_may_be_missing_or_null(read):
    expected = Problem(
        id="mine-000001", question="2+2?", answer="4", solution=None, split=None, line=1
    )
    assert read(ROW) == [expected]
    assert read(ROW | {"id": None, "solution": None, "split": None, "other": 1}) == [expected]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": ""}, "empty question"),
        ({"question": "  \n"}, "empty question"),
        ({"question": None}, "empty question"),
        ({"question": 3}, "wrong type"),
        ({"question": "\ud800"}, "not Unicode"),
        ({"answer": float("nan")}, "not a number"),
        ({"answer": float("inf")}, "not a number"),
        ({"answer": True}, "wrong type"),
        ({"answer": [4]}, "wrong type"),
        ({"answer": ""}, "empty answer"),
        ({"answer": 10**4000}, "answer does not parse"),
        ({"solution": 4}, "wrong type"),
        ({"split": "dev"}, "unknown split"),
        ({"id": 1.5}, "wrong type"),
    ],
)
def test_a_bad_field_is_quarantined_with_its_line_and_reason(read, change, reason):
    good, bad = read(ROW, ROW | change)
    assert isinstance(good, Problem)
    assert isinstance(bad, BadRow)
    assert (bad.file, bad.line) == ("mine.jsonl", 2)
    assert bad.reason.partition(":")[0] == reason


@pytest.mark.parametrize("column", ["question", "answer"])
def test_a_missing_column_is_named_with_those_that_are_there(read, column):
    (bad,) = read({key: value for key, value in ROW.items() if key != column})
    assert isinstance(bad, BadRow)
    other = "answer" if column == "question" else "question"
    assert bad.reason == (f"missing column: '{column}' is not among the row's columns ({other})")


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


def hub(folder: Path, *, test_split: str | None = "test", **columns: str) -> problem_files.Hub:
    return problem_files.Hub.model_validate(
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
    rows = list(hub(folder).problems())
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
    rows = list(hub(folder, test_split=None).problems())
    assert len(rows) == 3
    assert {row.split for row in rows if isinstance(row, Problem)} == {None}


def test_a_wrong_column_is_every_rows_reason(folder):
    rows = list(hub(folder, question="prompt").problems())
    assert all(isinstance(row, BadRow) for row in rows)
    assert isinstance(rows[0], BadRow)
    assert "'prompt' is not among the row's columns (label, text, why)" in rows[0].reason


def test_a_split_that_does_not_exist_is_a_clear_error(folder):
    with pytest.raises(ValueError, match=r"split 'validation' of the folder .*data\.source"):
        list(hub(folder, test_split="validation").problems())


def test_a_data_set_that_cannot_be_reached_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"hub data set 'nobody/nothing'.*save the data set to a"):
        list(hub(Path("nobody/nothing")).problems())
