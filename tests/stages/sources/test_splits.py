"""Which files of a path, or which split of a data set, problems, pairs and steps are read from.

One resolver serves all three: a row of `FOLDERS` is read by each of them.
"""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from cached_hub import cache_dataset

from stages.records.problems import BadRow
from stages.sources import containers, preference_files, problem_files, step_files
from stages.sources.containers import Place
from stages.sources.preference_files import PairColumns
from stages.sources.problem_files import FileSource, SourceReport

CARD = """---
configs:
- config_name: main
  data_files:
  - {split: train, path: a.jsonl}
  - {split: train_sft, path: sft.jsonl}
  - {split: test, path: "b*"}
- config_name: elsewhere
  data_files: elsewhere/*
---
"""
PREFS = "data/train_prefs.jsonl data/train_sft.jsonl data/test_prefs.jsonl"
MARKED = "README.md a.jsonl sft.jsonl b.jsonl"
FOLDERS: list[tuple[str, dict[str, str], list[str]]] = [
    # files; options; rows of training and rows of the test, or words of the refusal
    ("train.jsonl test.jsonl", {}, ["train", "test"]),
    ("data/train-00000-of-00002.jsonl data/train-00001-of-00002.jsonl.gz data/test-00000.csv dev.json",
     {}, ["data/train-00000-of-00002 data/train-00001-of-00002.jsonl.gz", "data/test-00000.csv"]),
    ("trainset.jsonl testset.jsonl", {}, ["trainset", "testset"]),
    ("train.jsonl notes.jsonl dev.jsonl", {}, ["train", ""]),
    ("a.jsonl b.jsonl test_cases.jsonl", {}, ["a b test_cases", ""]),
    ("only_test.jsonl", {}, ["only_test", ""]),
    ("validation.jsonl test.jsonl", {}, ["!test_path"]),
    ("rows.jsonl test-00000-of-00001.jsonl", {}, ["!test_path"]),
    ("rows.jsonl eval.jsonl", {}, ["!test_path"]),
    ("rows.jsonl math_test.jsonl", {}, ["!test_path"]),
    ("rows.jsonl heldout.jsonl", {}, ["!test_path"]),
    ("rows.jsonl val/rows.jsonl", {}, ["!test_path"]),
    ("train.jsonl test.jsonl", {"train": "train", "test": "test"}, ["train", "test"]),
    ("contest_train.jsonl contest_test.jsonl", {"train": "train", "test": "test"},
     ["contest_train", "contest_test"]),
    ("latest_train.jsonl latest_test.jsonl", {"train": "train", "test": "test"},
     ["latest_train", "latest_test"]),
    ("gsm8k_train.jsonl gsm8k_test.jsonl", {"test": "test"}, ["gsm8k_train", "gsm8k_test"]),
    ("ds-train.v2.jsonl ds-test.v2.jsonl", {"train": "train", "test": "test"},
     ["ds-train.v2", "ds-test.v2"]),
    ("train1.jsonl Test-00000-of-00003.jsonl", {"train": "train", "test": "test"},
     ["train1", "Test-00000-of-00003"]),
    ("train/a.jsonl train/b.jsonl test/a.jsonl", {"train": "train", "test": "test"},
     ["train/a train/b", "test/a"]),
    ("a.jsonl", {"train": "train"}, ["a", ""]),
    ("test.jsonl", {"train": "train"}, ["!'train'"]),
    ("a.jsonl contest.jsonl", {"train": "test"}, ["!'test'", "a.jsonl, contest.jsonl"]),
    (PREFS, {"train": "train_sft"}, ["data/train_sft", ""]),
    (PREFS, {"train": "test_prefs"}, ["data/test_prefs", ""]),
    (PREFS, {"train": "prefs"}, ["!'prefs'", "data/test_prefs.jsonl, data/train_prefs.jsonl"]),
    ("math.jsonl math_test.jsonl", {"train": "math"}, ["!'math'", "math.jsonl, math_test.jsonl"]),
    ("train.jsonl test.jsonl", {"train": "dev"}, ["!'dev'", "test.jsonl, train.jsonl"]),
    (PREFS, {"name": "main"}, ["!'main'"]),
    ("train.jsonl", {"revision": "abc"}, ["!'abc'"]),
    (MARKED, {}, ["a", "b"]),
    (MARKED, {"name": "main", "train": "train_sft"}, ["sft", "b"]),
    (MARKED, {"name": "mian"}, ["!main", "mian"]),
    (MARKED, {"train": "dev"}, ["!'dev'", "train_sft"]),
    (f"{MARKED} elsewhere/c.jsonl", {}, ["!main, elsewhere"]),
    (f"{MARKED} elsewhere/c.jsonl", {"name": "elsewhere"}, ["elsewhere/c", ""]),
    ("README.md sft.jsonl b.jsonl", {}, ["!train_sft, test"]),
    ("README.md b.jsonl", {}, ["b", ""]),
    (f"saved {PREFS}", {}, ["!data/train_prefs, data/train_sft"]),
    (f"saved {PREFS}", {"train": "data/train_sft"}, ["data/train_sft", ""]),
    ("saved train.jsonl test.jsonl", {}, ["train", "test"]),
    ("saved train.jsonl test.jsonl", {"train": "dev"}, ["!'dev'", "train, test"]),
    ("saved train.jsonl test.jsonl", {"name": "main"}, ["!'main'"]),
]  # fmt: skip
ROWS = {
    "problems": lambda stem: {"question": f"{stem}?", "answer": "4"},
    "pairs": lambda stem: {"prompt": f"{stem}?", "chosen": "a", "rejected": "b"},
    "steps": lambda stem: {"prompt": f"{stem}?", "completions": ["a"], "labels": [True]},
}


def write_folder(folder: Path, names: str, kind: str) -> None:
    """Files that hold a row of their name each; `saved`: splits of a saved data set."""
    is_saved, stems = names.startswith("saved "), names.removeprefix("saved ").split()
    splits = dict[str, Any]()
    for name in stems:
        stem, path = name.removesuffix(".jsonl"), folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        splits[stem] = datasets.Dataset.from_list([ROWS[kind](stem)])
        if not is_saved:
            path.write_text(CARD if name == "README.md" else json.dumps(ROWS[kind](stem)))
    if is_saved:
        datasets.DatasetDict(splits).save_to_disk(folder)


def read_problems(path: Path, *, train=None, test=None, **options: Any) -> list[str]:
    """The stems of the rows of training, and of those of the test."""
    named = {"train_split": train, "test_split": test, "path": str(path), **options}
    rows = [*problem_files.read_problems(FileSource(**named), SourceReport(path=""))]
    assert not any(isinstance(row, BadRow) for row in rows)
    stems = [[row.question.removesuffix("?") for row in rows if (row.split == "test") == is_test]
             for is_test in (False, True)]  # fmt: skip
    return [" ".join(side) for side in stems]


def read_others(path: Path, kind: str, options: dict[str, str]) -> str:
    place = Place(path, options.get("name"), options.get("train"), options.get("revision"))
    if kind == "pairs":
        rows: list[Any] = [*preference_files.read_preferences(place, PairColumns())]
        return " ".join(row.plain_prompt.removesuffix("?") for row in rows)
    rows = [*step_files.read_solutions(place, step_files.Stepwise(kind="stepwise"))]
    return " ".join(row[0].question.removesuffix("?") for row in rows)


@pytest.mark.parametrize(
    ("names", "options", "expected"), FOLDERS,
    ids=[f"{' '.join(names.split()[:3])} {options}" for names, options, _ in FOLDERS],
)  # fmt: skip
def test_the_split_of_a_folder_is(names, options, expected, tmp_path):
    for kind in ROWS if "test" not in options else ["problems"]:
        folder = tmp_path / kind
        write_folder(folder, names, kind)
        if ".csv" in names:
            (folder / "data/test-00000.csv").write_text("question,answer\ndata/test-00000.csv?,4\n")
        if not expected[0].startswith("!"):
            if kind == "problems":
                assert read_problems(folder, **options) == expected
            else:
                assert read_others(folder, kind, options) == expected[0]
            continue
        with pytest.raises(ValueError, match="") as error:
            read_problems(folder, **options) if kind == "problems" else read_others(
                folder, kind, options
            )
        words = [expected[0][1:], *expected[1:]]
        assert [word for word in words if word not in str(error.value)] == [], str(error.value)


def test_a_name_of_which_files_are_of_both_splits_is_refused_with_these_files(tmp_path):
    write_folder(tmp_path, "train.jsonl test.jsonl train_test.jsonl", "problems")
    with pytest.raises(ValueError, match=r"train_test\.jsonl"):
        read_problems(tmp_path, train="train", test="test")
    with pytest.raises(ValueError, match="'test'"):
        read_problems(tmp_path, train="test", test="test")


def test_files_that_are_not_read_are_reported_and_text_about_them_is_not(tmp_path):
    rows = ["B.JSONL", "c.jsonlines", "d.jl", "g.CSV", "h.json.GZ"]
    others = ["_e.jsonl", "i.txt", "j.xlsx", "k.json.zip", "l.feather"]
    for name in (
        *rows,
        *others,
        "README.md",
        "LICENSE",
        "licence.txt",
        ".hidden.txt",
        "a.dvc",
        "state.py",
    ):
        (tmp_path / name).write_text(json.dumps(ROWS["problems"](name)) + "\n")
    report = SourceReport(path="")
    (tmp_path / "g.CSV").write_text("question,answer\ng.CSV?,4\n")
    assert read_problems(tmp_path) == [" ".join(rows), ""]
    problem_files.open_splits(FileSource(path=str(tmp_path)), report)
    assert report.unread_files == others
    (tmp_path / "train.jsonl").write_text(json.dumps(ROWS["problems"]("train")))
    problem_files.open_splits(FileSource(path=str(tmp_path)), report)
    assert report.unread_files == [*rows, *others]


@pytest.mark.parametrize("form", ["", "saved "])
def test_a_test_path_stands_in_place_of_the_test_split_beside_it(tmp_path, form):
    write_folder(tmp_path / "set", f"{form}train.jsonl test.jsonl", "problems")
    write_folder(tmp_path, "other.jsonl", "problems")
    other = str(tmp_path / "other.jsonl")
    assert read_problems(tmp_path / "set", test_path=other) == ["train", "other"]
    assert problem_files.list_local_files(FileSource(path="openai/gsm8k", test_path=other)) == [
        Path(other)
    ]
    several = [str(tmp_path / "set"), other] if not form else other
    assert read_problems(tmp_path / "other.jsonl", test_path=several)[0] == "other"
    with pytest.raises(ValueError, match="test_split"):
        FileSource(path="a", test_path="b", test_split="test")


def test_paths_may_be_a_glob_or_a_list(tmp_path):
    write_folder(tmp_path, "a.jsonl b.jsonl c.jsonl", "problems")
    names = [[path.name for path in containers.list_files(paths)] for paths in (
        str(tmp_path / "[ab].jsonl"), [str(tmp_path / "c.jsonl"), str(tmp_path / "a.jsonl")])]  # fmt: skip
    assert names == [["a.jsonl", "b.jsonl"], ["c.jsonl", "a.jsonl"]]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.md").touch()
    for name in ("missing.jsonl", "folder", "*.x"):
        with pytest.raises(ValueError, match="expected a file"):
            containers.list_files(str(tmp_path / name))


def test_a_data_set_of_the_hub_is_read_by_its_splits(tmp_path, monkeypatch):
    rows = [ROWS["problems"](str(number)) for number in range(3)]
    cache_dataset(tmp_path, "sums", {"train": rows[:2], "test": rows[2:]}, monkeypatch)
    path: Any = "owner/sums"
    assert read_problems(path) == ["0 1", "2"]
    assert read_problems(path, train="test") == ["2", ""]
    assert read_problems(path, test_path="owner/sums") == ["0 1", "2"]
    for name in ("owner/sums", "nobody/nothing"):
        with pytest.raises(ValueError, match=name):
            read_problems(name, test="dev")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"mine\.jsonl"):  # no id of the hub
        read_problems("mine.jsonl")  # type: ignore[arg-type]
