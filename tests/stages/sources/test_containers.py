"""Bytes of a file -> its rows, bad rows by line, or why nothing can be read.

A container, an archive, a way of being broken: a row of a table here.
"""

import bz2
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pytest
from pyarrow import ipc, parquet

from stages.records.problems import BadRow
from stages.sources import containers
from stages.sources.containers import RawRow
from stages.sources.conversations import READ_KEYS

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
    "without a newline at the end": LINES.rstrip(),
    "after a byte order mark": b"\xef\xbb\xbf" + LINES,
    "of Windows": LINES.replace(b"\n", b"\r\n"),
    "an array": json.dumps(ROWS).encode(),
    "an array over lines": json.dumps(ROWS, indent=1).encode(),
    "an array of a row a line": b"[" + LINES.strip().replace(b"\n", b",\n") + b",\n]\n",
    "an object that holds a list": json.dumps({"version": "1.1", "data": ROWS}).encode(),
    "the same over lines": json.dumps({"version": "1.1", "data": ROWS}, indent=2).encode(),
    "gzip": gzip.compress(LINES),
    "zstandard": zstd(LINES),
    "xz": lzma.compress(LINES),
    "bzip2": bz2.compress(LINES),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_is_known_by_its_bytes_whatever_its_name(tmp_path, kind):
    for name in ("rows.json", "rows.jsonl", "rows.csv", "rows"):
        (tmp_path / name).write_bytes(CONTAINERS[kind])
        assert read(tmp_path / name) == ROWS, name


MESSAGES = [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "a"}]
DESCRIBED = {"version": "1", "licence": "MIT", "count": 2, "system": "", "test": [],
             "authors": [{"name": "a"}], "schema": {"fields": []}}  # fmt: skip
SHOTS = {"question": "REAL?", "answer": "4", "examples": [{"question": "shot", "answer": "9"}]}
PROMPTED = {"prompt": "REAL?", "examples": [{"prompt": "shot"}]}
ITEMS = {"question": "REAL?", "items": [{"name": "a"}], "test": [{"input": "1"}]}
EXCHANGE = {"prompt": [MESSAGES[0]], "completion": [MESSAGES[1]]}
STEMS = {"question": {"stem": "a"}, "answer": {"stem": "b"}}
READ = {
    "a description beside the rows": (DESCRIBED | {"data": ROWS}, ROWS),
    "what is said of all rows": ({"system": "S", "tools": [{"name": "f"}],
                                  "rows": [{"a": 1}, {"system": "T"}]},
                                 [{"system": "S", "tools": [{"name": "f"}], "a": 1},
                                  {"system": "T", "tools": [{"name": "f"}]}]),
    "rows of training": ({"train": ROWS}, ROWS),
    "rows of a test": ({"test": [{"a": 1}, {"a": 2, "split": "x"}]},
                       [{"split": "test", "a": 1}, {"split": "x", "a": 2}]),
    "rows of a dev set": ({"validation_set": [{"a": 1}]}, [{"split": "validation", "a": 1}]),
    "a split beside the rows": ({"split": "test", "data": [{"a": 1}]}, [{"split": "test", "a": 1}]),
    "a conversation": (MESSAGES, [{"messages": MESSAGES}]),
    "a conversation in an object": ({"data": MESSAGES}, [{"messages": MESSAGES}]),
    "a column called from": ([{"from": "MATH", "question": "A?"}],
                             [{"from": "MATH", "question": "A?"}]),
    "lists of messages": ([{"m": {"from": ["human", "gpt"], "value": ["A?", "a"]}}],
                          [{"m": [{"from": "human", "value": "A?"},
                                  {"from": "gpt", "value": "a"}]}]),
    "lists of other lengths": ([{"m": {"role": ["user", "gpt"], "content": ["A?"]}}],
                               [{"m": {"role": ["user", "gpt"], "content": ["A?"]}}]),
    **{f"a row: {[*row]}": (row, [row]) for row in (SHOTS, PROMPTED, ITEMS, EXCHANGE, STEMS)},
}  # fmt: skip


@pytest.mark.parametrize("kind", READ)
def test_a_document_holds_rows_or_is_one(tmp_path, kind):
    content, rows = READ[kind]
    (tmp_path / "rows").write_text(json.dumps(content))
    assert read(tmp_path / "rows") == rows


LONG = b'{"a": "' + b"x" * 2 * containers.MAX_LINE_BYTES + b'"}'
SPOILED = {
    "lines": (
        b"\n".join([b'{"a": 1}', b'{"a": "\xff"}', b"{oops", b"[1]", b"3", LONG, b"[" * 100_000,
                    b'{"a": 1, "a": 2}', b"null", b'{"a": 2}']),
        [{"a": 1}, {"a": 2}],
        {2: "not UTF-8: byte 8", 3: "not JSON", 4: "not an object", 5: "not an object",
         6: "over-long", 7: "not JSON", 8: "duplicate key: 'a'", 9: "not an object"},
    ),
    "a broken first line": (b"{oops\n" + LINES, ROWS, {1: "not JSON"}),
    "a bad first byte": (b'{"a": "\xff"}\n' + LINES, ROWS, {1: "not UTF-8"}),
    "a first line of text": (b"hello\n" + LINES, ROWS, {1: "not JSON"}),
    "an array": (b'[{"a": 1}, {"a": "\xff"}, 3, {"a": 2, "a": 3}, {"a": 2},\n]',
                 [{"a": 1}, {"a": 2}],
                 {2: "not UTF-8", 3: "not an object", 4: "duplicate key"}),
    "a table": (b'a,b\n1,"2\n2"\n1\n1,2,3\n\xff,2\n\n3,4\n',
                [{"a": "1", "b": "2\n2"}, {"a": "3", "b": "4"}],
                {4: "another number", 5: "another number", 6: "not UTF-8"}),
    "semicolons": ("a;b\n1/2;0,5\n2, 3;4\nx;1.234,5\nx;12,5 kg\nx;€ 3,50\nx;-€3,50\nx;12,5%\n"
                   "x;1 234,5\nx;1,2,3\nx;(1,2)\nx;x,y\nx;3 or 4,5 or 6\nx;A,1\n".encode(),
                   [{"a": "2, 3", "b": "4"}, *({"a": "x", "b": value} for value in
                    ("1,2,3", "(1,2)", "x,y", "3 or 4,5 or 6", "A,1"))],
                   {2: "decimal comma", **dict.fromkeys(range(4, 10), "decimal comma")}),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPOILED)
def test_a_bad_row_spoils_itself_alone_and_has_its_line(tmp_path, kind):
    content, rows, reasons = SPOILED[kind]
    (tmp_path / "rows").write_bytes(content)
    assert read(tmp_path / "rows") == rows
    result = bad(tmp_path / "rows")
    assert result.keys() == reasons.keys()
    assert [line for line, reason in reasons.items() if not result[line].startswith(reason)] == []


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b'{"a": 1}\n\n{"a": 2}\n', [1, 3]), (b'a,b\n1,"x\ny\nz"\n\n2,z\n3,z\n', [2, 6, 7]),
        (b'[{"a": 1},\n\n{"a": 2}]', [1, 2]),
    ],
)  # fmt: skip
def test_rows_have_the_numbers_of_their_lines(tmp_path, content, lines):
    (tmp_path / "rows").write_bytes(content)
    assert [row.line for row in containers.read_file(tmp_path / "rows")] == lines


TAR = b"rows.jsonl".ljust(257, b"\0") + b"ustar\0" + LINES
MANY = LINES * 99
REFUSED = {
    "nothing": (b"", "empty"),
    "white space": (b"\n \n", "empty"),
    "an empty array": (b"[]", "empty"),
    "a cut array": (b'[{"a": 1},\n {"a"', "row 2, line 2 after 1"),
    "an array cut between rows": (b'[{"a": 1},', "row 2, line 1 after 1"),
    "a cut text": (b'\n[{"a": "x', "row 1, line 2 after 0"),
    "a cut object": (b'{"data": [\n{"a": 1},\n{"a"', "within line 3"),
    "no comma": (b'[\n{"a": 1},\n{"a" 2},\n{"a": 3}]', "row 2, line 3"),
    "two arrays": (b'[{"a": 1}][{"a": 2}]', "row 2, line 1"),
    "cut gzip": (gzip.compress(MANY)[:-9], "broken"),
    "cut xz": (lzma.compress(MANY)[:-9], "broken"),
    "cut bzip2": (bz2.compress(MANY)[:-9], "broken"),
    "cut zstandard": (zstd(MANY)[:-9], ""),
    "cut parquet": (b"PAR1" + b"x" * 50, "broken"),
    "damaged gzip": (gzip.compress(MANY)[:40] + b"x" * 200, "broken"),
    "UTF-16": ("a".encode("utf-16"), "UTF-16"),
    "a column twice": (b"a,a\n1,2\n", "each column once"),
    "an open quote": (b'a,b\n1,"2\n3,4\n', "row 1"),
    "two splits": (b'{"train": [{"a": 1}], "test": [{"a": 2}]}', "2 ('train', 'test')"),
    "a held-out list": (b'{"data": [{"a": 1}], "dev": [{"a": 2}]}', "2 ('data', 'dev')"),
    "another list": (b'{"data": [{"a": 1}], "more": [{"a": 2}]}', "2 ('data', 'more')"),
    "columns": (b'{"question": ["a", "b"], "answer": ["4", "5"]}', "object of columns"),
    "columns of pandas": (b'{"q": {"0": "a", "1": "b"}, "a": {"0": "4", "1": "5"}}', "of columns"),
    "rows by name": (b'{"1": {"q": "a"}, "2": {"q": "b"}}', "object of rows"),
    "a message a row": (json.dumps([{"id": 1} | MESSAGES[0]] * 2).encode(), "'id'"),
    "a message of ShareGPT a row": (b'{"data": [{"id": 1, "from": "gpt", "value": "a"}]}', "'id'"),
    "a page": (b"<!DOCTYPE html>\n<html></html>\n", "web page"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "a zip archive": (b"PK\x03\x04" + LINES, "Unpack"),
    "a tar archive": (TAR, "Unpack"),
    "a packed tar archive": (gzip.compress(TAR), "Unpack"),
    "zeros": (bytes(1000), "first line"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "first line"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_of_which_nothing_can_be_read_is_named(tmp_path, kind):
    path, (content, words) = tmp_path / "rows.x", REFUSED[kind]
    path.write_bytes(content)
    with pytest.raises(ValueError, match="") as error:
        list(containers.read_file(path))
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_has_a_header_and_its_values_are_text(tmp_path, delimiter):
    text = f'a{delimiter}b\n9007199254740993{delimiter}é\n2{delimiter}"x\ny"\n'
    (tmp_path / "rows").write_text(text, encoding="utf-8")
    assert read(tmp_path / "rows") == [{"a": str(row["a"]), "b": row["b"]} for row in ROWS]
    for name in ("PK", "ORCID", "SQLite", "pdf"):  # as other formats begin
        (tmp_path / "rows").write_text(f"{name}{delimiter}b\n1{delimiter}2\n")
        assert read(tmp_path / "rows") == [{name: "1", "b": "2"}]


def test_a_table_of_pandas_has_a_column_without_a_name(tmp_path):
    (tmp_path / "rows").write_text(",question,answer\n0,2+2?,4\n")
    assert read(tmp_path / "rows") == [{"Unnamed: 0": "0", "question": "2+2?", "answer": "4"}]


def test_numbers_are_exact_and_one_that_no_float_equals_stays_text(tmp_path):
    numbers = ("12345678901234567890.5", "0.1", "1e400", "1e3", "0.12345678901234568",
               "9007199254740993", "0.30000000000000004", "1234567890.12345678")  # fmt: skip
    (tmp_path / "rows").write_text("".join(f'{{"a": {number}}}\n' for number in numbers))
    assert [row["a"] for row in read(tmp_path / "rows")] == [
        "12345678901234567890.5", 0.1, "1e400", 1000.0, 0.12345678901234568, 2**53 + 1,
        0.1 + 0.2, "1234567890.12345678",
    ]  # fmt: skip


def write_columns(table: Any, form: str, path: Path) -> list[Any]:
    """The fields of a table's rows, written and read in this form."""
    if form == "saved":
        datasets.Dataset(table).save_to_disk(path)
        rows = containers.read_dataset(
            containers.load_splits(str(path), None, None)["train"], "train"
        )
        return [row.fields if isinstance(row, RawRow) else row for row in rows]
    if form == "parquet":
        parquet.write_table(table, path)
    else:
        opened = ipc.new_file if form == "arrow file" else ipc.new_stream
        with opened(path, table.schema) as writer:
            writer.write_table(table)
    return read(path)


@pytest.mark.parametrize("form", ["parquet", "arrow file", "arrow stream", "saved"])
def test_columns_keep_their_types(tmp_path, form):
    """Dates are text; the nearest number of 32 bits to 0.1, 0.10000000149, is the decimal 0.1."""
    short = pyarrow.float32()
    kind = pyarrow.struct([("rate", short), ("all", pyarrow.list_(short))])
    scores = pyarrow.array([{"rate": 0.7, "all": [0.1]}, None]).cast(kind)
    table = pyarrow.Table.from_pylist(ROWS)
    for name, column in {
        "day": pyarrow.array([0, 1], pyarrow.date32()), "short": pyarrow.array([0.1, 27.0], short),
        "half": pyarrow.array([0.3, None], pyarrow.float16()), "scores": scores,
        "double": pyarrow.array([0.1, 1 / 3]),
    }.items():  # fmt: skip
        table = table.append_column(name, column)
    rows = write_columns(table, form, tmp_path / "rows")
    expected = [
        ROWS[0] | {"day": "1970-01-01", "short": 0.1, "half": 0.3, "double": 0.1,
                   "scores": {"rate": 0.7, "all": [0.1]}},
        ROWS[1] | {"day": "1970-01-02", "short": 27.0, "half": None, "double": 1 / 3,
                   "scores": None},
    ]  # fmt: skip
    if form == "saved":  # datasets has its own type of days
        rows, expected = ([{**row, "day": None} for row in side] for side in (rows, expected))
    assert rows == expected


def test_a_tool_of_a_column_has_no_arguments_of_other_tools(tmp_path):
    """Parquet gives every object the keys of all of them, filled up with null."""
    tools = [{"function": {"name": name, "parameters": {argument: {"type": "string"}}}}
             for name, argument in (("add", "number"), ("find", "word"))]  # fmt: skip
    calls = [{"function": {"name": "add", "arguments": {"number": "1"}}},
             {"function": {"name": "find", "arguments": {"word": "a"}}}]  # fmt: skip
    rows = [{"tools": tools, "messages": [{"role": "assistant", "tool_calls": calls}],
             "facts": {"answer": None}}]  # fmt: skip
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "rows")
    assert read(tmp_path / "rows") == rows


def test_a_map_of_parquet_is_an_object(tmp_path):
    maps = [[("A", "x"), ("B", "y")], [], None, [("A", "x"), ("A", "y")]]
    kind = pyarrow.map_(pyarrow.string(), pyarrow.string())
    parquet.write_table(pyarrow.table({"a": pyarrow.array(maps, kind)}), tmp_path / "rows")
    assert read(tmp_path / "rows") == [{"a": {"A": "x", "B": "y"}}, {"a": []}, {"a": None}]
    assert bad(tmp_path / "rows")[4].startswith("duplicate key: 'A'")


def test_a_file_of_messages_may_have_every_key_of_a_message_that_is_read():
    assert READ_KEYS <= containers.MESSAGE_KEYS
