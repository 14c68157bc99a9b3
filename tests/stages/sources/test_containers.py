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
from ruamel.yaml import YAML

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


@pytest.mark.parametrize("pack", [gzip.compress, zstd, lzma.compress, bz2.compress])
def test_a_packed_file_is_known_by_its_bytes(tmp_path, pack):
    (tmp_path / "rows.jsonl").write_bytes(pack(LINES))
    assert read(tmp_path / "rows.jsonl") == ROWS


DOCUMENTS = YAML(typ="safe").load(Path(__file__).with_name("documents.yaml"))


MARKS = {b"<FF>": b"\xff", b"<0>": b"\0", b"<deep>": b"[" * 100_000,
         b"<long>": b'{"a": "' + b"x" * 2 * containers.MAX_LINE_BYTES + b'"}'}  # fmt: skip


@pytest.mark.parametrize("name", ["rows", "rows.json", "rows.jsonl", "rows.csv"])
@pytest.mark.parametrize("case", DOCUMENTS, ids=lambda case: case["it"])
def test_a_document_holds_rows_is_one_or_is_refused_whatever_its_name(tmp_path, case, name):
    path = tmp_path / name
    content = case["text"].encode() if "text" in case else json.dumps(case["content"]).encode()
    for mark, meaning in MARKS.items():
        content = content.replace(mark, meaning)
    path.write_bytes(content)
    if "refused" in case:
        with pytest.raises(ValueError, match="") as error:
            list(containers.read_file(path))
        assert str(error.value).startswith(f"{path}: ")
        assert case["refused"] in str(error.value)
        return
    assert read(path) == case["gives"]
    reasons, expected = bad(path), case.get("bad", {})
    assert reasons.keys() == expected.keys()
    assert all(reasons[line].startswith(words) for line, words in expected.items()), reasons
    lines = [row.line for row in containers.read_file(path)]
    assert lines == case.get("lines", lines)


TAR = b"rows.jsonl".ljust(257, b"\0") + b"ustar\0" + LINES
MANY = LINES * 99
BROKEN = {
    "cut gzip": (gzip.compress(MANY)[:-9], "broken"),
    "cut xz": (lzma.compress(MANY)[:-9], "broken"),
    "cut bzip2": (bz2.compress(MANY)[:-9], "broken"),
    "cut zstandard": (zstd(MANY)[:-9], ""),
    "cut parquet": (b"PAR1" + b"x" * 50, "broken"),
    "damaged gzip": (gzip.compress(MANY)[:40] + b"x" * 200, "broken"),
    "UTF-16": ("a".encode("utf-16"), "UTF-8"),
    "JSON lines in UTF-16": (LINES.decode().encode("utf-16-le"), "UTF-8"),
    "a zip archive": (b"PK\x03\x04\x14\0" + LINES, "Unpack"),
    "a tar archive": (TAR, "Unpack"),
    "a packed tar archive": (gzip.compress(TAR), "Unpack"),
    "zeros": (bytes(1000), "not UTF-8 text"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "not UTF-8 text"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_of_which_nothing_can_be_read_is_named(tmp_path, kind):
    path, (content, words) = tmp_path / "rows.x", BROKEN[kind]
    path.write_bytes(content)
    with pytest.raises(ValueError, match="") as error:
        list(containers.read_file(path))
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)


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


@pytest.mark.parametrize("form", ["parquet", "saved"])
def test_a_class_has_its_name(tmp_path, form):
    names = datasets.Features({"a": datasets.ClassLabel(names=["no", "yes"])})
    table = datasets.Dataset.from_dict({"a": [1, 0, None, -1]}, features=names).data.table
    rows = write_columns(table, form, tmp_path / "rows")
    assert rows == [{"a": "yes"}, {"a": "no"}, {"a": None}, {"a": None}]
    if form == "parquet":  # the note stays where the column is dropped, or written as text
        dropped = pyarrow.table({"b": ["x"]}).replace_schema_metadata(table.schema.metadata)
        assert write_columns(dropped, form, tmp_path / "dropped") == [{"b": "x"}]
        text = pyarrow.table({"a": ["x"]}).replace_schema_metadata(table.schema.metadata)
        assert write_columns(text, form, tmp_path / "text") == [{"a": "x"}]


def test_a_map_of_parquet_is_an_object(tmp_path):
    maps = [[("A", "x"), ("B", "y")], [], None, [("A", "x"), ("A", "y")]]
    kind = pyarrow.map_(pyarrow.string(), pyarrow.string())
    parquet.write_table(pyarrow.table({"a": pyarrow.array(maps, kind)}), tmp_path / "rows")
    assert read(tmp_path / "rows") == [{"a": {"A": "x", "B": "y"}}, {"a": []}, {"a": None}]
    assert bad(tmp_path / "rows")[4].startswith("duplicate key: 'A'")


def test_a_file_of_messages_may_have_every_key_of_a_message_that_is_read():
    assert READ_KEYS <= containers.MESSAGE_KEYS
