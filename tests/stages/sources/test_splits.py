"""Which files of a path, or which split of a data set, problems, pairs and steps are read from.

One resolver serves all three: a row of splits.yaml is read by each of them.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pytest
from cached_hub import cache_dataset
from ruamel.yaml import YAML

from stages.records.problems import BadRow
from stages.sources import containers, preference_files, problem_files, step_files
from stages.sources.containers import Place
from stages.sources.preference_files import PairColumns
from stages.sources.problem_files import FileSource, SourceReport

TABLES = YAML(typ="safe").load(Path(__file__).with_name("splits.yaml"))
CARD = f"---\nconfigs: {TABLES['card']}\n---\n"
ROWS = {
    "problems": lambda stem: {"question": f"{stem}?", "answer": "4"},
    "pairs": lambda stem: {"prompt": f"{stem}?", "chosen": "a", "rejected": "b"},
    "steps": lambda stem: {"prompt": f"{stem}?", "completions": ["a"], "labels": [True]},
}


def write_folder(folder: Path, names: str, kind: str, card: str = CARD) -> None:
    """Files that hold a row of their name each; `saved`: splits of a saved data set."""
    is_saved, stems = names.startswith("saved "), names.removeprefix("saved ").split()
    splits = dict[str, Any]()
    for name in stems:
        stem, path = name.removesuffix(".jsonl"), folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        splits[stem] = datasets.Dataset.from_list([ROWS[kind](stem)])
        if not is_saved:
            path.write_text(card if name == "README.md" else json.dumps(ROWS[kind](stem)))
        if name.endswith(".csv"):
            path.write_text(f"question,answer\n{stem}?,4\n")
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


def read_others(path: Path, *, kind: str, name=None, train=None, revision=None) -> str:
    place = Place(path, name, train, revision)
    if kind == "pairs":
        rows: list[Any] = [*preference_files.read_preferences(place, PairColumns())]
        return " ".join(row.plain_prompt.removesuffix("?") for row in rows)
    rows = [*step_files.read_solutions(place, step_files.Stepwise(kind="stepwise"))]
    return " ".join(row[0].question.removesuffix("?") for row in rows)


@pytest.mark.parametrize(
    "case", TABLES["folders"], ids=lambda case: f"{case['files']} {case.get('card', '')}"[:80]
)
def test_the_split_of_a_folder_is(case, tmp_path):
    options = case["with"]
    for kind in ROWS if "test" not in options else ["problems"]:
        folder = tmp_path / kind
        # A byte order mark changes nothing.
        card = f"\ufeff---\nconfigs: {case['card']}\n---\n" if "card" in case else CARD
        write_folder(folder, case["files"], kind, card)
        read = read_problems if kind == "problems" else partial(read_others, kind=kind)
        if "refused" not in case:
            expected = [case["train"], case.get("test", "")]
            assert read(folder, **options) == (expected if kind == "problems" else expected[0])
            continue
        with pytest.raises(ValueError, match="") as error:
            read(folder, **options)
        assert [word for word in case["refused"] if word not in str(error.value)] == []


def test_rows_of_the_test_split_alone_may_say_that_they_are_of_the_test(tmp_path):
    for split in ("train", "test"):
        rows = [ROWS["problems"](split) | {"subset": "test" if split == "test" else "a"}]
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(rows))
    assert read_problems(tmp_path) == ["train", "test"]
    (tmp_path / "train.jsonl").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match="subset"):
        read_problems(tmp_path)


def test_files_that_are_not_read_are_reported(tmp_path):
    rows = ["B.JSONL", "c.jsonlines", "d.jl", "g.CSV", "h.json.GZ"]
    others = ["_e.jsonl", "i.txt", "k.json.zip"]
    for name in (*rows, *others, ".hidden.txt", "README.md"):
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
    mixed = FileSource(path="openai/gsm8k", test_path=other)
    assert problem_files.list_local_files(mixed) == [Path(other)]
    several = [str(tmp_path / "set"), other] if not form else other
    assert read_problems(tmp_path / "other.jsonl", test_path=several)[0] == "other"
    with pytest.raises(ValueError, match="test_split"):
        FileSource(path="a", test_path="b", test_split="test")


def test_paths_may_be_a_glob_or_a_list(tmp_path):
    write_folder(tmp_path, "a.jsonl b.jsonl c.jsonl", "problems")
    names = [[path.name for path in containers.list_files(paths)] for paths in (
        str(tmp_path / "[ab].jsonl"),
        [str(tmp_path / "c.jsonl"), str(tmp_path / "a.jsonl")])]  # fmt: skip
    assert names == [["a.jsonl", "b.jsonl"], ["c.jsonl", "a.jsonl"]]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.md").touch()
    for name in ("missing.jsonl", "folder", "*.x"):
        with pytest.raises(ValueError, match="expected a file"):
            containers.list_files(str(tmp_path / name))


def test_files_of_a_list_or_a_glob_are_told_apart_by_the_folders_around_them(tmp_path):
    write_folder(tmp_path, "set/train/a.jsonl set/test/a.jsonl", "problems")
    for paths in (
        str(tmp_path / "set"), str(tmp_path / "set/*/*.jsonl"),
        [str(tmp_path / "set/test"), str(tmp_path / "set/train")],
        [str(tmp_path / f"set/{split}/a.jsonl") for split in ("train", "test")],
    ):  # fmt: skip
        rows = [*problem_files.read_problems(FileSource(path=paths), SourceReport(path=""))]
        assert [(row.split, row.question, row.id) for row in rows] == [
            (split, f"set/{split}/a?", f"{split}-a-000001") for split in ("train", "test")
        ]


@pytest.mark.parametrize(("place", "row", "split"), [
    ("train", "train", "train"), ("train", "dev", "dev"), ("train", "test", None),
    ("test", "test", "test"), ("test", "validation", "test"), ("test", "train", None),
])  # fmt: skip
def test_a_row_that_is_of_the_test_in_one_place_and_of_training_in_another_is_a_bad_one(
    tmp_path, place, row, split
):
    for name in ("train", "test"):
        fields = ROWS["problems"](name) | {"split": row if name == place else name}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(fields))
    train, test = (str(tmp_path / f"{name}.jsonl") for name in ("train", "test"))
    for paths in ({"path": str(tmp_path)}, {"path": train, "test_path": test}):
        source = FileSource.model_validate(paths)
        rows = [*problem_files.read_problems(source, SourceReport(path=""))]
        (read,) = [item for item in rows if item.file == f"{place}.jsonl"]
        assert read.reason.startswith("two splits") if split is None else read.split == split
        source = source.model_copy(update={"ignore": ["split"]})
        rows = [*problem_files.read_problems(source, SourceReport(path=""))]
        assert [item.split for item in rows] == ["train", "test"]


def test_files_without_the_words_of_the_named_split_are_reported(tmp_path):
    write_folder(tmp_path, "train_v2.jsonl test.jsonl extra.jsonl", "problems")
    report, source = SourceReport(path=""), FileSource(path=str(tmp_path), train_split="train_v2")
    assert [row.question for row in problem_files.read_problems(source, report)] == ["train_v2?"]
    assert report.unread_files == ["extra.jsonl", "test.jsonl"]


def test_a_data_set_of_the_hub_is_read_by_its_splits(tmp_path, monkeypatch):
    rows = [ROWS["problems"](str(number)) for number in range(3)]
    cache_dataset(tmp_path, "sums", {"train": rows[:2], "test": rows[2:]}, monkeypatch)
    path: Any = "owner/sums"
    assert read_problems(path) == ["0 1", "2"]
    assert read_problems(path, train="test") == ["2", ""]
    assert read_problems(path, test_path="owner/sums") == ["0 1", "2"]
    for name in ("owner/sums", "nobody/nothing"):
        with pytest.raises(ValueError, match=name):
            read_problems(name, test="dev")  # pyright: ignore
    with pytest.raises(ValueError, match=r"mine\.jsonl"):  # no id of the hub
        read_problems("mine.jsonl")  # pyright: ignore
