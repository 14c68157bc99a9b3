import bz2
import gzip
import json
import lzma
import re
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from stages.records.problems import BadRow
from stages.sources import columns, containers, tool_calls
from stages.sources.containers import Place as FolderSplit
from stages.sources.containers import RawRow
from stages.sources.quarantine import FileLimits

ROWS: list[dict[str, Any]] = [{"a": 2**53 + 1, "b": "é"}, {"a": 2, "b": "x\ny"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


class _Files:
    def __init__(self, splits, unread):
        self.splits, self.unread = splits, unread


def _by_name(path):
    return _Files(*containers.split_by_name(path))


def read(path: Path) -> list[dict[str, Any]]:
    return [row.fields for row in containers.read_file(path) if isinstance(row, RawRow)]


def bad(path: Path) -> dict[int, str]:
    rows = [row for row in containers.read_file(path) if isinstance(row, BadRow)]
    assert {row.file for row in rows} <= {path.name}
    return {row.line: row.reason for row in rows}


def zstd(content: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


CONTAINERS = {
    "JSON lines": LINES,
    "JSON lines without a newline at the end": LINES.rstrip(),
    "JSON lines after a byte order mark": b"\xef\xbb\xbf" + LINES,
    "JSON lines of Windows": LINES.replace(b"\n", b"\r\n"),
    "an array": json.dumps(ROWS).encode(),
    "an array over lines": json.dumps(ROWS, indent=1).encode(),
    "an array of a row a line": b"[" + LINES.strip().replace(b"\n", b",\n") + b"\n]\n",
    "an object that holds a list": json.dumps({"version": "1.1", "data": ROWS}).encode(),
    "the same over lines": json.dumps({"version": "1.1", "data": ROWS}, indent=2).encode(),
    "gzip": gzip.compress(LINES),
    "zstandard": zstd(LINES),
    "xz": lzma.compress(LINES),
    "bzip2": bz2.compress(LINES),
}


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.csv", "rows"])
@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_is_known_by_its_bytes_whatever_its_name(tmp_path, kind, name):
    path = tmp_path / name
    path.write_bytes(CONTAINERS[kind])
    assert read(path) == ROWS


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_has_a_header_and_its_values_are_text(tmp_path, delimiter):
    path = tmp_path / "rows.txt"
    text = f'a{delimiter}b\n9007199254740993{delimiter}é\n2{delimiter}"x\ny"\n'
    path.write_text(text, encoding="utf-8")
    assert read(path) == [{"a": str(row["a"]), "b": row["b"]} for row in ROWS]


@pytest.mark.parametrize("form", ["parquet", "arrow file", "arrow stream", "saved"])
def test_columns_keep_their_types_and_dates_are_text(tmp_path, form):
    table = pyarrow.Table.from_pylist(ROWS)
    table = table.append_column("day", pyarrow.array([0, 1], pyarrow.date32()))
    path = tmp_path / "rows"
    match form:
        case "parquet":
            datasets.Dataset(table).to_parquet(path)
        case "arrow file":
            with pyarrow.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        case "arrow stream":
            with pyarrow.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table)
        case "saved":
            datasets.Dataset(table).save_to_disk(path)
            loaded = containers.load_splits(str(path), None, None)["train"]
            rows = [row.fields for row in containers.read_dataset(loaded, "train")
                    if isinstance(row, RawRow)]  # fmt: skip
            assert [row["a"] for row in rows] == [row["a"] for row in ROWS]
            return
    assert read(path) == [
        ROWS[0] | {"day": "1970-01-01"}, ROWS[1] | {"day": "1970-01-02"},
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["parquet", "saved"])
def test_a_number_of_fewer_bits_is_the_decimal_that_was_written(tmp_path, form):
    """The nearest number of 32 bits to 0.1 is 0.100000001490116..."""
    short, half = pyarrow.float32(), pyarrow.float16()
    scores = pyarrow.array([{"rate": 0.7, "all": [0.1]}, None])
    kind = pyarrow.struct([("rate", short), ("all", pyarrow.list_(short))])
    table = pyarrow.table({
        "answer": pyarrow.array([0.1, 27.0], short), "half": pyarrow.array([0.3, None], half),
        "scores": scores.cast(kind), "double": [0.1, 1 / 3],
    })  # fmt: skip
    path = tmp_path / "rows"
    if form == "parquet":
        parquet.write_table(table, path)
        rows = read(path)
    else:
        datasets.Dataset(table).save_to_disk(path)
        loaded = containers.load_splits(str(path), None, None)["train"]
        rows = [row.fields for row in containers.read_dataset(loaded, "train")
                if isinstance(row, RawRow)]  # fmt: skip
    assert rows == [
        {"answer": 0.1, "half": 0.3, "scores": {"rate": 0.7, "all": [0.1]}, "double": 0.1},
        {"answer": 27.0, "half": None, "scores": None, "double": 1 / 3},
    ]


def test_a_tool_of_a_column_has_no_arguments_of_other_tools(tmp_path):
    """Parquet gives every object the keys of all of them, filled up with null."""

    def make_tool(name, argument):
        parameters = {"type": "object", "properties": {argument: {"type": "string"}}}
        return {"type": "function", "function": {"name": name, "parameters": parameters}}

    tools = [make_tool("add", "number"), make_tool("find", "word")]
    calls = [{"function": {"name": "add", "arguments": {"number": "1"}}},
             {"function": {"name": "find", "arguments": {"word": "a"}}}]  # fmt: skip
    rows = [{"tools": tools, "messages": [{"role": "assistant", "tool_calls": calls}],
             "facts": {"answer": None}}]  # fmt: skip
    path = tmp_path / "rows"
    datasets.Dataset.from_list(rows).to_parquet(path)
    assert read(path) == rows
    assert json.loads(tool_calls.read_tools([tools[0] | {"strict": None}], "tools")) == [tools[0]]


def test_numbers_are_exact_and_one_that_no_float_equals_stays_text(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 12345678901234567890.5}\n{"a": 0.1}\n{"a": 1e400}\n{"a": 1e3}\n')
    assert [row["a"] for row in read(path)] == ["12345678901234567890.5", 0.1, "1e400", 1000.0]


def test_rows_have_the_numbers_of_their_lines(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": 2}\n')
    assert [row.line for row in containers.read_file(path)] == [1, 3]
    path.write_text('a,b\n1,"x\ny"\n2,z\n')
    assert [row.line for row in containers.read_file(path)] == [2, 4]


def test_a_bad_line_spoils_only_itself(tmp_path):
    path = tmp_path / "rows.jsonl"
    long = b'{"a": "' + b"x" * containers.MAX_LINE_BYTES + b'"}'
    lines = [
        b'{"a": 1}', b'{"a": "\xff"}', b"{oops", b"[1]", b"3", long, b"[" * 100_000,
        b'{"a": 1, "a": 2}', b'{"a": 2}',
    ]  # fmt: skip
    path.write_bytes(b"\n".join(lines))
    assert read(path) == [{"a": 1}, {"a": 2}]
    reasons = bad(path)
    assert list(reasons) == list(range(2, 9))
    expected = [
        "not UTF-8: byte 8 of the line is 0xff", "not JSON: ", "not an object: .*found list",
        "not an object: .*found int", "over-long row: ", "not JSON: ", "duplicate key: 'a'",
    ]  # fmt: skip
    for reason, pattern in zip(reasons.values(), expected, strict=True):
        assert re.match(pattern, reason)


@pytest.mark.parametrize("first", [b"{oops", b'{"a": "\xff"}', b"hello"])
def test_lines_with_a_bad_first_one_are_lines(tmp_path, first):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(first + b"\n" + LINES)
    assert read(path) == ROWS
    assert list(bad(path)) == [1]


def test_a_bad_byte_or_element_of_an_array_spoils_only_its_row(tmp_path):
    path = tmp_path / "rows.json"
    path.write_bytes(b'[{"a": 1}, {"a": "\xff"}, 3, {"a": 2, "a": 3}, {"a": 2},\n]')
    assert read(path) == [{"a": 1}, {"a": 2}]
    assert [reason.partition(":")[0] for reason in bad(path).values()] == [
        "not UTF-8", "not an object", "duplicate key",
    ]  # fmt: skip


def test_a_row_of_a_table_with_other_columns_or_bytes_is_bad(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n1,2\n1\n1,2,3\n\xff,2\n3,4\n")
    assert read(path) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert list(bad(path)) == [3, 4, 5]


ROW = {"question": "REAL?", "answer": "4"}
OBJECTS_THAT_ARE_ROWS: dict[str, dict[str, Any]] = {
    "a question with shots": ROW | {"examples": [{"question": "shot", "answer": "9"}]},
    "a prompt with shots": {"prompt": "REAL?", "examples": [{"prompt": "shot"}]},
    "a question with items": ROW | {"items": [{"name": "a"}], "test": [{"input": "1"}]},
    "texts in turn": {"id": "1", "data": ["Hi", "Ho"]},
    "a pair of messages": {"prompt": [{"role": "user", "content": "Hi"}],
                           "completion": [{"role": "assistant", "content": "Ho"}]},
    "columns of one level": {"question": {"stem": "a"}, "answer": {"stem": "b"}},
}  # fmt: skip


@pytest.mark.parametrize("kind", OBJECTS_THAT_ARE_ROWS)
def test_an_object_that_asks_something_is_a_row_whatever_lists_it_holds(tmp_path, kind):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(OBJECTS_THAT_ARE_ROWS[kind]))
    assert read(path) == [OBJECTS_THAT_ARE_ROWS[kind]]


def test_what_describes_a_list_of_rows_may_stand_beside_it(tmp_path):
    path = tmp_path / "rows.json"
    beside = {"version": "1", "licence": "MIT", "name": "n", "description": "d", "system": "",
              "authors": [{"name": "a"}], "schema": {"fields": []}, "features": [{"name": "a"}],
              "test": []}  # fmt: skip
    path.write_text(json.dumps(beside | {"data": ROWS}))
    assert read(path) == ROWS


@pytest.mark.parametrize("key", ["test", "dev", "validation_set", "testset"])
def test_rows_under_the_name_of_a_held_out_split_say_so(tmp_path, key):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({key: [{"a": 1}, {"a": 2, "split": "x"}]}))
    rows = read(path)
    assert columns.says_test("split", rows[0]["split"])
    assert rows[1] == {"a": 2, "split": "x"}
    path.write_text(json.dumps({"split": "test", "data": [{"a": 1}]}))
    assert read(path) == [{"split": "test", "a": 1}]
    path.write_text(json.dumps({"train": ROWS}))
    assert read(path) == ROWS


SAID = [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"data": rows}])
def test_a_file_of_messages_is_one_conversation_only_where_nothing_says_of_which(tmp_path, wrap):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(wrap(SAID)))
    assert read(path) == [{"messages": SAID}]
    for message in ({"role": "user", "content": "B?"}, {"from": "human", "value": "B?"}):
        path.write_text(json.dumps(wrap([{"conversation_id": 1} | message] * 2)))
        with pytest.raises(ValueError, match="found a message a row, with 'conversation_id'"):
            read(path)
    path.write_text(json.dumps(wrap([{"from": "MATH", "question": "A?"}])))
    assert read(path) == [{"from": "MATH", "question": "A?"}]


BROKEN = {
    "nothing": (b"", "an empty file"),
    "white space": (b"\n \n", "an empty file"),
    "an empty array": (b"[]", "an empty one"),
    "a cut array": (b'[{"a": 1},\n {"a"', "row 2, line 2 after 1 whole rows: it was cut short"),
    "a cut array, between rows": (b'[{"a": 1},', "row 2, line 1 after 1 whole rows: it was cut"),
    "a cut text in an array": (b'\n[{"a": "x', "row 1, line 2 after 0 whole rows: it was cut"),
    "a cut object": (b'{"data": [\n{"a": 1},\n{"a"', "ends within line 3: it was cut short"),
    "an array without a comma": (
        b'[\n{"a": 1},\n{"a" 2},\n{"a": 3}]',
        "broken JSON in row 2, line 3 .*before '2}",
    ),
    "two arrays": (b'[{"a": 1}][{"a": 2}]', "row 2, line 1 .Extra data"),
    "cut gzip": (gzip.compress(LINES * 99)[:-9], "a broken one"),
    "cut xz": (lzma.compress(LINES * 99)[:-9], "a broken one"),
    "cut bzip2": (bz2.compress(LINES * 99)[:-9], "a broken one"),
    "cut zstandard": (zstd(LINES * 99)[:-9], "a broken one|an empty file|cut short"),
    "cut parquet": (b"PAR1" + b"x" * 50, "a broken one"),
    "UTF-16": ("a".encode("utf-16"), "UTF-16"),
    "a table that names a column twice": (b"a,a\n1,2\n", "each column once"),
    "a quote that is not closed": (b'a,b\n1,"2\n3,4\n', "a quote is not closed"),
    "two lists": (b'{"train": [{"a": 1}], "test": [{"a": 2}]}', "Write each to a file"),
    "a list and a held-out one": (
        b'{"data": [{"a": 1}], "dev": [{"a": 2}]}',
        "found 2 .'data', 'd",
    ),
    "a list and another": (b'{"data": [{"a": 1}], "more": [{"a": 2}]}', "found 2 .'data', 'more'"),
    "a system message of all": (
        b'{"system": "Speak French.", "data": [{"a": 1}]}',
        "what is said of all .*'system'",
    ),
    "a prefix of all": (b'{"rows": [{"a": 1}], "task_prefix": "Solve:"}', "of all .*'task_prefix'"),
    "tools of all": (b'{"rows": [{"a": 1}], "tools": [{"name": "f"}]}', "of all .*'tools'"),
    "columns": (b'{"question": ["a", "b"], "answer": ["4", "5"]}', "found an object of columns"),
    "columns of pandas": (
        b'{"question": {"0": "a", "1": "b"}, "answer": {"0": "4", "1": "5"}}',
        "object of columns",
    ),
    "rows by name": (b'{"1": {"q": "a"}, "2": {"q": "b"}}', "found an object of rows"),
    "damaged gzip": (gzip.compress(LINES * 99)[:40] + b"x" * 200, "a broken one"),
    "a page": (b"<!DOCTYPE html>\n<html></html>\n", "a web page"),
    "a pointer of Git LFS": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "a zip archive": (b"PK\x03\x04" + LINES, "Unpack it"),
    "a tar archive": (b"rows.jsonl".ljust(257, b"\0") + b"ustar\0" + LINES, "Unpack it"),
    "a packed tar archive": (
        gzip.compress(b"rows.jsonl".ljust(257, b"\0") + b"ustar\0" + LINES),
        "Unpack it",
    ),
    "zeros": (bytes(1000), "as its first line"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "as its first line"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_of_which_nothing_can_be_read_is_named(tmp_path, kind):
    path = tmp_path / "rows.x"
    content, reason = BROKEN[kind]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: .*({reason})"):
        list(containers.read_file(path))


@pytest.mark.parametrize("name", ["PK", "ORCID", "SQLite", "pdf"])
def test_a_table_whose_first_column_is_called_like_another_format_is_a_table(tmp_path, name):
    path = tmp_path / "rows.csv"
    path.write_text(f"{name},question\n1,2\n", encoding="utf-8")
    assert read(path) == [{name: "1", "question": "2"}]


def test_a_folder_has_its_data_files_by_split(tmp_path):
    names = ["data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl.gz",
             "data/test-00000.csv", "validation.json", "README.md", "dataset_info.json",
             ".hidden.json"]  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    result = _by_name(str(tmp_path))
    shown = {split: [file.name for file in files] for split, files in result.splits.items()}
    assert shown == {
        "train": ["train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl.gz"],
        "test": ["test-00000.csv"],
    }
    assert [file.name for file in result.unread] == ["validation.json"]


def test_without_a_train_file_all_are_of_one_source(tmp_path):
    for name in ("a.jsonl", "b.jsonl", "test_cases.jsonl"):
        (tmp_path / name).write_bytes(LINES)
    result = _by_name(str(tmp_path))
    assert {split: len(files) for split, files in result.splits.items()} == {None: 3}
    assert len(containers.list_files(str(tmp_path / "[ab].jsonl"))) == 2
    assert len(containers.list_files([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])) == 2
    rows = list(containers.read_files(result.splits[None], str(tmp_path)))
    assert [row.file for row in rows if isinstance(row, RawRow)][::2] == [
        "a.jsonl", "b.jsonl", "test_cases.jsonl",
    ]  # fmt: skip


def test_a_file_of_a_folder_is_read_or_listed_as_not_read(tmp_path):
    read_names = ["B.JSONL", "c.jsonlines", "d.jl", "g.CSV", "h.json.GZ"]
    unread_names = ["_e.jsonl", "i.txt", "j.xlsx", "k.json.zip", "l.feather"]
    others = ["README.md", "LICENSE", "licence.txt", ".hidden.txt", "a.dvc", "state.json"]
    for name in (*read_names, *unread_names, *others):
        (tmp_path / name).write_bytes(LINES)
    result = _by_name(str(tmp_path))
    assert [file.name for file in result.splits[None]] == read_names
    assert [file.name for file in result.unread] == unread_names
    (tmp_path / "train.jsonl").write_bytes(LINES)
    names = [file.name for file in _by_name(str(tmp_path)).unread]
    assert names == [*read_names, *unread_names]
    assert _by_name(str(tmp_path / "d.jl")).unread == []


def test_a_map_of_parquet_is_an_object(tmp_path):
    path = tmp_path / "rows"
    kind = pyarrow.map_(pyarrow.string(), pyarrow.string())
    maps = [[("A", "x"), ("B", "y")], [], None, [("A", "x"), ("A", "y")]]
    parquet.write_table(pyarrow.table({"choices": pyarrow.array(maps, kind)}), path)
    rows = read(path)
    assert [row["choices"] for row in rows] == [{"A": "x", "B": "y"}, [], None]
    assert bad(path) == {4: "duplicate key: 'A' stands twice in one object"}


@pytest.mark.parametrize("name", ["missing.jsonl", "folder", "*.x"])
def test_a_path_without_files_is_refused(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.md").touch()
    with pytest.raises(ValueError, match="expected a file of rows, a folder of such files"):
        containers.list_files(str(tmp_path / name))


def test_a_split_is_named_or_the_only_one_and_never_guessed():
    assert containers.default_split({"validation": 1, "train": 2}, "a/b") == "train"
    assert containers.default_split({"validation": 1}, "a/b") == "validation"
    with pytest.raises(ValueError, match="validation, test"):
        containers.default_split({"validation": 1, "test": 2}, "a/b")


def test_a_table_of_pandas_has_the_numbers_of_its_rows_in_a_column_without_a_name(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(",question,answer\n0,2+2?,4\n1,3+3?,6\n")
    assert read(path)[1] == {"Unnamed: 0": "1", "question": "3+3?", "answer": "6"}


def test_a_decimal_comma_beside_semicolons_is_no_two_numbers(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("question;answer\n1/2?;0,5\n2+2, 3?;4\n")
    assert read(path) == [{"question": "2+2, 3?", "answer": "4"}]
    assert "decimal comma" in bad(path)[2]
    wrong = ["1.234,5", "12,5 kg", "€ 3,50", "-€3,50", "3,50 €", "+2,5", "-0,5", "12,5%", "1 234,5",
             "90,5 km/h", "2,5 m²"]  # fmt: skip
    right = [
        "1,2,3",
        "4",
        "1.234",
        "(1,2)",
        "x,y",
        "3 or 4,5 or 6",
        "12,5 is the right number",
        "A,1",
    ]
    lines = [f"{n}?;{value}\n" for n, value in enumerate(wrong + right)]
    path.write_text("question;answer\n" + "".join(lines), encoding="utf-8")
    assert [row["answer"] for row in read(path)] == right
    assert len(bad(path)) == len(wrong)


@pytest.mark.parametrize(
    ("names", "tests"),
    [
        (["trainset.jsonl", "testset.jsonl"], ["testset.jsonl"]),
        (["validation.jsonl", "test.jsonl"], None),
        (["rows.jsonl", "test-00000-of-00001.jsonl"], None),
        (["rows.jsonl", "eval.jsonl"], None),
        (["rows.jsonl", "math_test.jsonl"], None),
        (["rows.jsonl", "heldout.jsonl"], None),
        (["rows.jsonl", "val/rows.jsonl"], None),
    ],
)
def test_test_rows_are_never_rows_of_no_split(tmp_path, names, tests):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(LINES)
    if tests is None:
        with pytest.raises(ValueError, match="test_path"):
            _by_name(str(tmp_path))
    else:
        splits = _by_name(str(tmp_path)).splits
        assert [file.name for file in splits["test"]] == tests


CARD = """---
configs:
- config_name: default
  data_files:
  - {split: train_prefs, path: data/train_prefs*}
  - {split: train_sft, path: data/train_sft*}
  - {split: test_prefs, path: data/test_prefs*}
---
"""


@pytest.fixture
def zephyr(tmp_path):
    """A folder with splits as of UltraFeedback binarized, without its README.md."""
    (tmp_path / "data").mkdir()
    for name in ("train_prefs", "train_sft", "test_prefs"):
        (tmp_path / f"data/{name}.jsonl").write_text(json.dumps({"question": name}))
    return tmp_path


def questions_of(place: containers.Place) -> list[str]:
    rows = [row for row in containers.open_rows(place) if isinstance(row, RawRow)]
    return [row.fields["question"] for row in rows]


def test_the_splits_of_a_folder_are_those_of_its_card(zephyr):
    (zephyr / "README.md").write_text(CARD)
    with pytest.raises(ValueError, match="no split 'train': name one of train_prefs, train_sft"):
        questions_of(zephyr)
    for split in ("train_sft", "test_prefs"):
        assert questions_of(FolderSplit(zephyr, split=split)) == [split]
    assert questions_of(FolderSplit(zephyr, "default", "train_prefs")) == ["train_prefs"]
    with pytest.raises(ValueError, match="no split 'train_pref'; it has train_prefs"):
        questions_of(FolderSplit(zephyr, split="train_pref"))
    with pytest.raises(ValueError, match=r"has the configurations default: .*found main"):
        questions_of(FolderSplit(zephyr, "main"))


def test_without_a_card_a_split_is_a_part_of_a_files_name(zephyr):
    assert questions_of(FolderSplit(zephyr, split="test_prefs")) == ["test_prefs"]
    file = zephyr / "data/train_sft.jsonl"
    assert questions_of(FolderSplit(file, split="train")) == questions_of(file) == ["train_sft"]
    with pytest.raises(ValueError, match="split 'dev': expected it in a file's name, found data/"):
        questions_of(FolderSplit(zephyr, split="dev"))
    with pytest.raises(ValueError, match=r"name: 'main': expected null, since .* no README\.md"):
        questions_of(FolderSplit(zephyr, "main"))


def test_a_saved_data_set_is_read_by_its_splits(tmp_path):
    splits = datasets.DatasetDict()
    for name in ("train_prefs", "train_sft"):
        splits[name] = datasets.Dataset.from_list([{"question": name}])
    splits.save_to_disk(str(tmp_path / "saved"))
    assert questions_of(FolderSplit(tmp_path / "saved", split="train_sft")) == ["train_sft"]
    with pytest.raises(ValueError, match="no split 'train': name one of train_prefs, train_sft"):
        questions_of(tmp_path / "saved")


def test_a_folder_has_no_revision(tmp_path):
    limits = {"licence": "MIT", "max_tokens": 9, "max_bad_share": 0, "max_long_share": 0}
    preset = FileLimits(name="a", split="b", **limits)
    assert containers.find_folder_split(tmp_path, preset) == FolderSplit(tmp_path, "a", "b")
    with pytest.raises(ValueError, match=r"revision: 'main': expected null.*hub/<owner>/<name>"):
        containers.find_folder_split(tmp_path, FileLimits(revision="main", **limits))
