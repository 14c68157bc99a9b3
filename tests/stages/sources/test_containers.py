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

from stages.records.problems import BadRow
from stages.sources import containers, tool_calls
from stages.sources.containers import RawRow

ROWS: list[dict[str, Any]] = [{"a": 2**53 + 1, "b": "é"}, {"a": 2, "b": "x\ny"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


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
    "two lists": (b'{"train": [{"a": 1}], "test": [{"a": 2}]}', "write each to a file"),
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
    result = containers.find_splits(str(tmp_path))
    shown = {split: [file.name for file in files] for split, files in result.splits.items()}
    assert shown == {
        "train": ["train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl.gz"],
        "test": ["test-00000.csv"],
    }
    assert [file.name for file in result.unread] == ["validation.json"]


def test_without_a_train_file_all_are_of_one_source(tmp_path):
    for name in ("a.jsonl", "b.jsonl", "test_cases.jsonl"):
        (tmp_path / name).write_bytes(LINES)
    result = containers.find_splits(str(tmp_path))
    assert {split: len(files) for split, files in result.splits.items()} == {None: 3}
    assert len(containers.list_files(str(tmp_path / "[ab].jsonl"))) == 2
    assert len(containers.list_files([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])) == 2
    rows = list(containers.read_files(result.splits[None], str(tmp_path)))
    assert [row.file for row in rows if isinstance(row, RawRow)][::2] == [
        "a.jsonl", "b.jsonl", "test_cases.jsonl",
    ]  # fmt: skip


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
            containers.find_splits(str(tmp_path))
    else:
        splits = containers.find_splits(str(tmp_path)).splits
        assert [file.name for file in splits["test"]] == tests
