r"""Rows of data files in any common container, which is recognised by its first bytes.

| begins with | is read as |
|---|---|
| gzip, zstandard, xz or bzip2 | the packed file |
| `PAR1` | parquet |
| `ARROW1`, or an Arrow stream | Arrow, as `datasets` writes it |
| `[` | a JSON array of rows; JSON lines, if the first line is whole and others follow |
| `{` | JSON lines; one object with the rows under `data` or a similar key; or one row |
| any other text | a table with a header: csv, tsv, or with semicolons |

So a file's ending does not matter. JSON is parsed exactly: whole numbers of any size; a decimal
number whose digits no float has stays text. A row that cannot be parsed becomes a `BadRow` with
file, line (in a JSON array: the number of the element) and reason. A ValueError names a file from
which nothing can be read.

A value beside the list of rows in an object (a system message, tools, a number) is a column of each
row, unless it describes the file; a second list of objects is refused. Rows under `test` or `dev`
get a column `split` with that name. An object with a question or messages is one row.

A path is a file, a folder, a glob, a list of these, or a data set of the Hugging Face hub. In a
folder all data files are read, in the order of their names, and files with other endings are listed
as not read; the library `datasets` reads a folder that its `save_to_disk` wrote. Files with `train`
or `test` in their names are these splits.
"""

import bz2
import csv
import gzip
import itertools
import json
import lzma
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from stages import meter
from stages.config import read_yaml
from stages.records.problems import REASONING_KEYS, BadRow
from stages.sources import dataset_card
from stages.sources.quarantine import RejectedError, bad_row

MAX_LINE_BYTES = 2**20
"""Length above which a line of JSON is rejected without being decoded."""
NO_UTF8 = "not UTF-8: a byte of the row is none"
_NO_UTF8 = re.compile("[\udc80-\udcff]")
"""Bytes that are no UTF-8, as they are decoded."""
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
NAMES: Mapping[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
"""Content of a file, or of a key of a JSON object -> its usual names."""
SPLITS: Mapping[str, str] = NAMES["splits"]
"""Word in a file's name -> the file's split."""
_JSON_TEXT = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[][^\0]")
"""Beginning of JSON in UTF-8, of which a row with the character 0 is a bad one."""
_COLUMN = re.compile(r"\w[\w .():/-]*")
"""Name of a column in the header of a table."""
_CURRENCY = r"(?:[€$£¥]|EUR|USD|GBP|CHF)"
DECIMAL_COMMA = re.compile(
    rf"\s*(?:[-+\u2212±]\s?)?(?P<currency>{_CURRENCY}\s?)?(?:[-+\u2212]\s?)?"
    rf"(?:(?P<thousands>[0-9]{{1,3}}(?:[. '\u00a0\u202f][0-9]{{3}})+)|[0-9]+),(?P<decimals>[0-9]+)"
    rf"\s?(?P<unit>{_CURRENCY}|[%‰°]?[^\W\d]{{0,5}}[²³]?(?:/[^\W\d]{{1,4}}[²³]?)?)\s*"
)
"""Number with a comma that may be a decimal comma (in a table with semicolons it is), perhaps with
thousands, a sign, a currency or a unit."""
_LIST_SUFFIX = re.compile(r"[-_ ]?(?:set|data|split|rows|examples)$")
"""End of a key of a JSON object, after the name of the split whose rows it holds."""
MESSAGE_KEYS = frozenset({*NAMES["messages"], *REASONING_KEYS})
"""Keys of the messages of a file that is a conversation."""


class RawRow(NamedTuple):
    """Row of a file, unchanged."""

    file: str
    """The file's name, not its path; for a hub data set, the split."""
    line: int
    """Line, or number of the row in its container, from 1."""
    fields: dict[str, Any]


Rows = Iterator[RawRow | BadRow]


def sample_fields(rows: Sequence[RawRow | BadRow], ignore: Sequence[str]) -> list[dict[str, Any]]:
    """Fields of rows for the search of columns: all but the ignored ones."""
    objects = (row.fields for row in rows if isinstance(row, RawRow))
    return [{name: fields[name] for name in fields if name not in ignore} for fields in objects]


def read_head(rows: Rows, count: int) -> list[RawRow | BadRow]:
    """The first rows, until `count` of them are not bad rows."""
    head, num_whole = list[RawRow | BadRow](), 0
    while num_whole < count and (row := next(rows, None)) is not None:
        head.append(row)
        num_whole += isinstance(row, RawRow)
    return head


def list_files(paths: str | Sequence[str]) -> list[Path]:
    """The data files of a path, a glob or a list of these, sorted within each.

    Raises:
        ValueError: nothing is there, or a folder has no data file.
    """
    if not isinstance(paths, str):
        return [file for path in paths for file in list_files(path)]
    path = Path(paths)
    if path.is_file():
        return [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if is_data_file(file.relative_to(path)))
        kind = f"a folder without one ({', '.join(NAMES['suffixes'])}, packed or not)"
    else:
        matches = Path(path.anchor).glob(path.relative_to(path.anchor).as_posix())
        files = sorted(file for file in matches if file.is_file())
        kind = "none"
    if not files:
        raise ValueError(
            f"{paths}: expected a file of rows, a folder of such files or a pattern, found {kind}. "
            f"Put the file there, or correct the path."
        )
    return files


def is_data_file(path: Path) -> bool:
    """Whether a file in a folder has rows, by its name."""
    is_hidden = any(part.startswith((".", "_")) for part in path.parts)
    if is_hidden or path.name in NAMES["descriptions"]:
        return False
    stem = path.with_suffix("") if path.suffix.lower() in NAMES["packed"] else path
    return stem.suffix.lower() in NAMES["suffixes"]


def list_unread(paths: str | Sequence[str]) -> list[Path]:
    """Files in a folder that their names exclude from reading; not README.md and hidden ones."""
    if not isinstance(paths, str) or not (folder := Path(paths)).is_dir():
        return []
    names = {file: file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file()}
    others = [file for file, name in names.items() if "/." not in f"/{name}"]
    return [file for file in others if file.name != "README.md" and not is_data_file(names[file])]


def split_by_name(paths: str | Sequence[str]) -> tuple[dict[str | None, list[Path]], list[Path]]:
    """Files by the split in their names (None: no name has `train`), and unread files."""
    names = name_files(list_files(paths), paths)
    by_split: dict[str | None, list[Path]] = {}
    for file, name in names.items():
        split = _split_of(name) or _split_of_twin(name, names.values())
        by_split.setdefault(split, []).append(file)
    if "train" not in by_split and len(by_split) > 1 and isinstance(paths, str):
        shown = ", ".join(names.values())
        raise ValueError(
            f"{paths}: expected a file whose name says 'train' beside those held out, found "
            f"{shown:.200}. Say which are which: path and test_path, each a file or a list; for "
            f"`pairs` and `steps` name the file that is learned from."
        )
    if "train" not in by_split:
        return {None: [*names]}, list_unread(paths)
    unread = [file for split in (None, "validation") for file in by_split.pop(split, [])]
    return by_split, unread + list_unread(paths)


def name_files(files: Iterable[Path], paths: str | Sequence[str]) -> dict[Path, str]:
    """Each file with its path relative to the folder `paths`, or else to the folder around all."""
    files = [*files]
    if isinstance(paths, str) and Path(paths).is_dir():
        folder = paths
    else:
        folder = os.path.commonpath([file.parent.absolute() for file in files])
    return {file: Path(os.path.relpath(file, folder)).as_posix() for file in files}


def read_files(files: Iterable[Path], names: Mapping[Path, str]) -> Rows:
    """Every row of the files, which have these names in the rows."""
    for file in files:
        yield from read_file(file, names[file])


def read_file(path: Path, name: str | None = None) -> Rows:
    """Every row of a file; `name`: name of the file in the rows.

    Raises:
        ValueError: the file is missing, empty or broken, or has no rows.
    """
    name = name or path.name
    if not path.is_file():
        raise ValueError(f"{path}: expected a file of rows, found none. Put it there.")
    num_rows = 0
    try:
        with _unpack(path) as file:
            for row in _read_container(path, file, name):
                num_rows += 1
                meter.COUNTS["rows"] += 1
                yield row
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(
            f"{path}: expected a whole file, found a broken one ({error}). Copy it again."
        ) from error
    except csv.Error as error:
        raise ValueError(
            f"{path}: row {num_rows + 1}: {error}: a quote is not closed or not doubled, or a line "
            f"ends as on old Macs. Save the table again with quotes, or as JSON lines."
        ) from error
    if num_rows == 0:
        raise ValueError(f"{path}: expected rows, found an empty file. Fill it, or name another.")


def _unpack(path: Path) -> BufferedReader:
    with path.open("rb") as file:
        start = file.read(6)
    opens: dict[bytes, Callable[[Path], Any]] = {
        b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open, b"BZh": bz2.open,
    }  # fmt: skip
    for magic, open_packed in opens.items():
        if start.startswith(magic):
            return BufferedReader(open_packed(path))
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow

        return BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))
    return path.open("rb")


def _read_container(path: Path, file: BufferedReader, name: str) -> Rows:
    start = file.peek(512)[:512]
    if start.startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")):
        return _read_columns(path, file, name)
    if b"\0" in start and _JSON_TEXT.match(start) is None:
        raise ValueError(
            f"{path}: expected JSON, csv, tsv, parquet or Arrow, found bytes that are not UTF-8 "
            f"text. Unpack an archive, or save the rows in one of these forms."
        )
    lines = _split_lines(file)
    head = list(itertools.islice((line for line in lines if line[1].strip()), 2))
    if not head:
        return iter(())
    first, second, *_ = *(line.lstrip() for _, line in head), b""
    everything = itertools.chain(head, lines)
    is_open = first.rstrip().endswith((b"[", b"{", b","))
    are_objects = first.startswith(b"{") and second.startswith(b"{") and not is_open
    follows_text = not first.startswith(b"[") and _is_json(second)
    if second and (are_objects or follows_text or _is_json(first)):
        return _read_lines(name, everything)
    if first.startswith((b"{", b"[")):
        return _read_document(path, name, b"".join(line for _, line in everything), head[0][0])
    return _read_table(path, name, everything)


def _is_json(text: bytes) -> bool:
    """Whether a line is an object or an array."""
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _split_lines(file: BufferedReader) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, without a byte order mark.

    An over-long line is truncated, unless it is the first, which may have all rows.
    """
    yield 1, file.readline().removeprefix(b"\xef\xbb\xbf")
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=2):
        yield number, line
        chunk = line
        while len(line) > MAX_LINE_BYTES and chunk and not chunk.endswith(b"\n"):
            chunk = file.readline(MAX_LINE_BYTES)


# --- JSON


def _read_lines(name: str, lines: Iterable[tuple[int, bytes]]) -> Rows:
    for number, line in lines:
        if len(line) > MAX_LINE_BYTES:
            yield bad_row(name, number, f"over-long row: more than {MAX_LINE_BYTES} bytes", "")
        elif line.strip():
            yield _parse_line(name, number, line)


def _parse_line(name: str, number: int, line: bytes) -> RawRow | BadRow:
    try:
        text = line.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique, parse_float=_exact_float)
        return _make_row(name, number, value)
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte {error.start + 1} of the line is 0x{line[error.start]:02x}"
    except RejectedError as error:
        reason = str(error)
    except (ValueError, RecursionError) as error:
        # The error counts lines from this one, and its text after a semicolon is for programmers.
        message, shown = re.split(r"( at)?: line|;", str(error))[0], line.strip()[:40]
        reason = f"not JSON: {message}, in {shown.decode('utf-8', 'replace')!r}"
    return bad_row(name, number, reason, line.decode("utf-8", "replace").strip())


def _make_row(name: str, number: int, value: Any) -> RawRow | BadRow:
    """Row from a JSON value; a bare list of messages is a row with the column `messages`."""
    if isinstance(value, list) and value and all(_is_message(item) for item in value):
        value = {"messages": value}
    if isinstance(value, dict):
        return _zip_messages(RawRow(name, number, value))
    kind = "null" if value is None else type(value).__name__
    reason = f"not an object: expected {{...}}, found {kind}"
    return bad_row(name, number, reason, json.dumps(value))


def _zip_messages(row: RawRow) -> RawRow:
    """The row, with messages that are an object of lists converted to a list of objects.

    The library `datasets` used to write lists of objects as `{"from": [..], "value": [..]}`. Lists
    of different lengths stay as they are.
    """
    fields = dict(row.fields)
    for name, value in fields.items():
        lists = [*value.values()] if _is_message(value) else []
        if lists and all(isinstance(x, list) and len(x) == len(lists[0]) for x in lists):
            items = zip(*lists, strict=True)
            fields[name] = [dict(zip(value, item, strict=True)) for item in items]
    return row._replace(fields=fields)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and not value.keys().isdisjoint({"role", "from"})


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object from pairs; a RejectedError if one of two values of a key would be lost."""
    if len(fields := dict(pairs)) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise RejectedError(f"duplicate key: {twice!r:.60} stands twice in one object")
    return fields


def _exact_float(text: str) -> float | str:
    """The number; its digits as text if the nearest float is another number."""
    number = float(text)
    is_short = len(text) < 16 and abs(number) < 1e300  # a float has any 15 digits
    return number if is_short or Decimal(repr(number)) == Decimal(text) else text


def _load_document(path: Path, text: str, first_line: int) -> Any:
    """The value of JSON text; in place of an object with a key twice is the error.

    Raises:
        ValueError: the text is broken, so that the next row cannot be found; with its line.
    """

    def read_object(pairs: list[tuple[str, Any]]) -> Any:
        try:
            return _unique(pairs)
        except RejectedError as error:
            return error

    text = re.sub(r",(\s*\])\Z", r"\1", text)  # a comma after the last row
    try:
        return json.loads(text, object_pairs_hook=read_object, parse_float=_exact_float)
    except (ValueError, RecursionError) as error:
        is_placed = isinstance(error, json.JSONDecodeError)
        place = f"in line {first_line + error.lineno - 1} " if is_placed else ""
        raise ValueError(
            f"{path}: expected a whole JSON array of rows, one JSON object per line, or an object "
            f"that holds a list of rows, found JSON that breaks {place}by {error}. Correct it "
            f"there, or copy the file again."
        ) from error


def _raise(error: Any) -> NoReturn:
    raise error


def _read_document(path: Path, name: str, text: bytes, first_line: int) -> Rows:
    """Rows of a JSON array, or of an object with one list of rows; or the object as one row.

    A row with a byte that is not UTF-8, or with a key twice, is a bad row; others are kept. A list
    of messages without other keys is a single conversation.
    """
    decoded = text.decode("utf-8", "surrogateescape").strip()
    content = _load_document(path, decoded, first_line)
    for value in (content, *content.values()) if isinstance(content, dict) else (content,):
        if isinstance(value, RejectedError):
            raise ValueError(f"{path}: {value}: leave one of the two out")
    if isinstance(content, dict):
        content = _find_rows(path, content)
    if content and all(_is_message(item) and item.keys() <= MESSAGE_KEYS for item in content):
        content = [content]
    if not content:
        raise ValueError(f"{path}: expected a JSON array of rows, found an empty one. Fill it.")
    for number, value in enumerate(content, start=1):
        try:
            shown = json.dumps(value, ensure_ascii=False, default=_raise)
        except RejectedError as error:
            yield bad_row(name, number, str(error), "")
            continue
        if _NO_UTF8.search(shown):
            yield bad_row(name, number, NO_UTF8, shown)
        else:
            yield _make_row(name, number, value)


def _find_rows(path: Path, content: dict[str, Any]) -> list[Any]:
    """The list of rows in an object, or the object if it is one row.

    A value beside the list, other than a description, becomes a column of each row that has none of
    this name. Rows of a list under the name of a held-out split get this `split`, unless they have
    one: training data refuses such rows.

    Raises:
        ValueError: several lists, or columns in the place of rows.
    """
    if {*map(str.lower, content)}.isdisjoint(NAMES["asking"]):
        names = [name for name, value in content.items() if _is_named_list(name, value)]
        filled = [name for name in names if content[name]]
        beside: dict[str, Any] = {
            name: value for name, value in content.items()
            if name not in names and value and name.lower() not in NAMES["describing"]
        }  # fmt: skip
        if filled == ["examples"] and "prompt" in beside:
            return [content]  # a prompt with its shots
        shared = ("tools", "functions", "choices", "options")
        lists = filled + [name for name, value in beside.items()
                          if _holds_objects(value) and name.lower() not in shared]  # fmt: skip
        if filled and len(lists) > 1:
            raise ValueError(
                f"{path}: expected one list of rows, found {len(lists)} "
                f"({', '.join(map(repr, lists)):.200}). Write each to a file of its own: "
                f"train.json and test.json in a folder, or path and test_path."
            )
        if names:
            name = (filled or names)[0]
            split = _split_of_list(name) or beside.pop("split", None)
            if SPLITS.get(str(split).lower(), "train") != "train":
                beside["split"] = split
            return [beside | row if isinstance(row, dict) else row for row in content[name]]
    lists = [value for value in content.values() if isinstance(value, list) and value]
    are_long_alike = len(lists) == len(content) > 1 and len({*map(len, lists)}) == 1
    if are_long_alike and any(isinstance(value[0], str) for value in lists):
        raise ValueError(
            f"{path}: expected a list of rows, found an object of columns "
            f"({', '.join(map(repr, content)):.80}). Write a JSON array of rows, or one row per "
            f'line: [{{"question": .., "answer": ..}}, ..].'
        )
    return [content]


def _is_named_list(name: str, value: Any) -> bool:
    is_known = name.lower() in NAMES["lists"] or _split_of_list(name) is not None
    return is_known and (value == [] or _holds_objects(value))


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict | list) for item in value)


def _split_of_list(name: str) -> str | None:
    return SPLITS.get(_LIST_SUFFIX.sub("", name.lower()))


def _split_of(name: str) -> str | None:
    """The split in a file's name, such as `rows-test.csv`, `dev_set/rows.csv` or `mathTest.csv`."""
    words = [word.removesuffix("set") for word in _words_in(name)]  # `testset`
    return next((SPLITS[word] for word in reversed(words) if word in SPLITS), None)


def _split_of_twin(name: str, names: Iterable[str]) -> str | None:
    """The split of `gsm8ktest.csv` beside `gsm8ktrain.csv`: only these letters are different."""
    name, lowered = name.lower(), {each.lower() for each in names}
    if "train" in name and name.replace("train", "test") in lowered:
        return "train"
    return "test" if "test" in name and name.replace("test", "train") in lowered else None


def _words_in(name: str) -> list[str]:
    """The words and numbers of a file's name, in lower case: `math`, `test`, `2` of `mathTest2`."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W\d_]+|\d+", name.lower())


# --- Tables


def _read_table(path: Path, name: str, lines: Iterable[tuple[int, bytes]]) -> Rows:
    """Rows of a table with a header and commas, semicolons or tabs; each value is text.

    Raises:
        ValueError: the first line is no header.
        csv.Error: a quote is not closed, or between tabs a text in quotes holds whole rows.
    """
    texts = (line.decode("utf-8", "surrogateescape") for _, line in lines)
    header = next(texts)
    delimiter = max(",;\t", key=header.count)
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(itertools.chain([header], texts), delimiter=delimiter, strict=True)
    columns = [column.strip() for column in next(reader)]
    if len(columns) > 2 and not columns[0]:
        columns[0] = "Unnamed: 0"  # pandas' name of its column of row numbers
    is_header = len(set(columns)) == len(columns) and all(map(_COLUMN.fullmatch, columns))
    if not is_header or (len(columns) == 1 and not columns[0].isidentifier()):
        raise ValueError(
            f"{path}: expected JSON, parquet, Arrow or a table whose first line names each column "
            f"once, found {header.strip()[:60]!r} as its first line. Save it in one of these forms "
            f"(a pointer of git LFS becomes the file by `git lfs pull`)."
        )
    number = reader.line_num + 1
    for values in reader:
        line, number = number, reader.line_num + 1
        shown = delimiter.join(values)
        if not values:
            continue
        parts = shown.split("\n") if delimiter == "\t" else []  # often written without quotes
        if len(parts) > 1 and all(part.strip().count("\t") == len(columns) - 1 for part in parts):
            raise csv.Error(f"lines {line} to {number - 1}, which have a value in each column")
        commas = filter(DECIMAL_COMMA.fullmatch, values if delimiter == ";" else ())
        if _NO_UTF8.search(shown):
            reason = NO_UTF8
        elif len(values) != len(columns):
            reason = f"another number of values: {len(values)}, of {len(columns)} columns"
        elif (number_text := next(commas, None)) is not None:
            reason = f"decimal comma: {number_text!r:.40} may be one number or two: write 1.5"
        else:
            yield RawRow(name, line, dict(zip(columns, values, strict=True)))
            continue
        yield bad_row(name, line, reason, shown)


def _read_columns(path: Path, file: BufferedReader, name: str) -> Rows:
    """Rows of a parquet or Arrow file, in batches."""
    import pyarrow
    from pyarrow import ipc, parquet

    start = file.peek(6)[:6]
    seekable = file if file.seekable() else BytesIO(file.read())
    try:
        if start.startswith(b"PAR1"):
            batches: Iterable[Any] = parquet.ParquetFile(seekable).iter_batches(batch_size=1000)
        elif start.startswith(b"ARROW1"):
            reader = ipc.open_file(seekable)
            batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
        else:
            batches = ipc.open_stream(seekable)
        yield from _read_batches(batches, name)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(
            f"{path}: expected a whole parquet or Arrow file, found a broken one ({error}). Copy "
            f"it again."
        ) from error


def _read_batches(batches: Iterable[Any], name: str) -> Rows:
    """Rows of batches, or tables, of Arrow."""
    number = 0
    for batch in batches:
        kinds = {kind.name: kind.type for kind in batch.schema}
        labels = _read_labels(batch.schema)
        for fields in batch.to_pylist():
            number += 1
            try:
                codes = {key: fields[key] for key in labels if isinstance(fields[key], int)}
                fields |= {key: labels[key].get(code) for key, code in codes.items()}
                plain = {key: _plain(value, kinds[key]) for key, value in fields.items()}
            except RejectedError as error:
                yield bad_row(name, number, str(error), str(fields))
            else:
                yield _zip_messages(RawRow(name, number, plain))


def _read_labels(schema: Any) -> dict[str, dict[int, str]]:
    """Column of classes -> code -> name, which the library `datasets` notes in a file's schema."""
    metadata = json.loads((schema.metadata or {}).get(b"huggingface", "{}"))
    features = (metadata.get("info") or {}).get("features") or {}
    return {
        column: dict(enumerate(feature["names"]))
        for column, feature in features.items()  # also of columns that were dropped later
        if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel"
        if column in schema.names
    }


def _plain(value: Any, kind: Any, depth: int = 0) -> Any:
    """Value of an Arrow type as JSON: dates and exact decimals as text.

    A number of 16 or 32 bits becomes the decimal that was written: the nearest 32-bit float to 0.1
    is 0.10000000149011612 in 64 bits, which is not an answer. In a column of objects each has the
    keys of all, filled up with null: a tool's schema would gain the arguments of other tools. So
    null is dropped below the objects of a list.

    Args:
        value: A value of pyarrow's `to_pylist`.
        kind: Its Arrow type; None: unknown.
        depth: 0 outside of lists, 1 in a list, more below the objects of a list.
    """
    if value is None or isinstance(value, str | int | bytes):
        return value
    kind = getattr(kind, "storage_type", kind)
    if isinstance(value, float):
        is_short = str(kind) in ("float", "halffloat")
        return float(str(kind.to_pandas_dtype()(value))) if is_short else value
    if isinstance(value, list) and value and isinstance(value[0], tuple):  # Arrow's type `map`
        return {key: _plain(item, kind.item_type, depth) for key, item in _unique(value).items()}
    if isinstance(value, list):
        return [_plain(item, getattr(kind, "value_type", None), max(depth, 1)) for item in value]
    if isinstance(value, Mapping):
        kinds = {part.name: part.type for part in kind or ()}
        below = depth + (depth > 0)
        items = {key: _plain(item, kinds.get(key), below) for key, item in value.items()}
        return {key: item for key, item in items.items() if item is not None or depth < 2}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


# --- Data sets that the library `datasets` knows


def is_saved_dataset(path: str | Sequence[str]) -> bool:
    """Whether `path` is a folder that `datasets.save_to_disk` wrote."""
    names = ("dataset_dict.json", "state.json")
    return isinstance(path, str) and any((Path(path) / name).is_file() for name in names)


def is_hub_id(path: str | Sequence[str]) -> bool:
    """Whether `path` may be the id of a data set of the hub and is not a local file or folder."""
    if not isinstance(path, str) or HUB_ID.fullmatch(path) is None or Path(path).exists():
        return False
    # A missing file is not a data set of the hub.
    return Path(path).suffix.lower() not in (*NAMES["suffixes"], *NAMES["packed"])


class Place(NamedTuple):
    """A split of a file, a folder or a data set of the hub."""

    path: Path | str
    """Path, or id on the hub."""
    name: str | None = None
    """Name of the configuration, if there are several."""
    split: str | None = None
    """Name of the split; null: `train`, or the only one."""
    revision: str | None = None
    """Commit on the hub."""


Splits = Mapping[str | None, Callable[[], Rows]]
"""Split -> its rows; None: unknown split."""


def find_splits(
    paths: str | Sequence[str], splits: Sequence[str] = (), *, name: str | None = None,
    revision: str | None = None,
) -> tuple[Splits, list[Path]]:  # fmt: skip
    """The splits of a path, by `datasets`, its README.md, or names of files; and unread files.

    Args:
        paths: A file, a folder, a glob, a list of these, or a hub id.
        splits: Names to look for in the names of files, if nothing else tells the splits.
        name: The configuration of a hub id, or of a folder with its README.md.
        revision: A commit on the hub.

    Raises:
        ValueError: there is no such configuration, file or revision.
    """
    is_hub = is_hub_id(paths)
    if revision is not None and not is_hub:
        raise ValueError(
            f"revision: '{revision}': expected null, since {paths} is not of the hub and has no "
            f"revisions. Delete `revision`, or name the data set of the hub (in a row of `pairs` "
            f"or `steps` as on: hub/<owner>/<name>)."
        )
    if isinstance(paths, str) and (is_hub or (is_saved_dataset(paths) and name is None)):
        loaded = load_splits(paths, name, revision)
        return {split: partial(read_dataset, rows, split) for split, rows in loaded.items()}, []
    files = dataset_card.find_files(paths, name) if isinstance(paths, str) else None
    if files is None and name is not None:
        raise ValueError(
            f"name: '{name}': expected null, since {paths} has no README.md with configurations "
            f"whose files are there. Delete `name`, or correct the path."
        )
    if isinstance(files, dict):
        by_split, unread = files, list[Path]()
    else:
        paths = files or paths  # or the folder of the configuration
        by_split, unread = _select_files(paths, splits) if splits else split_by_name(paths)
    everything = itertools.chain.from_iterable(by_split.values())
    names = name_files([*everything, *unread], paths)
    return {split: partial(read_files, some, names) for split, some in by_split.items()}, unread


def _select_files(
    paths: str | Sequence[str], splits: Sequence[str]
) -> tuple[dict[str | None, list[Path]], list[Path]]:
    """Split -> files with its words in their names or folders, and the files of no split.

    `contest.jsonl` is not of `test`.

    Raises:
        ValueError: no name has the words of a split, or the files that have are of several splits.
    """
    files = name_files(list_files(paths), paths)
    selected: dict[str | None, list[Path]] = {
        split: [file for file, name in files.items() if _has_words(name, split)] for split in splits
    }
    if len(files) == 1 and "train" in splits and not selected["train"]:
        selected["train"] = [file for file, name in files.items() if _split_of(name) is None]
    for split, members in selected.items():
        others = [file for other in splits if other != split for file in selected[other]]
        are_mixed = len({_split_of(files[file]) for file in members}) > 1
        if not members or are_mixed or not set(members).isdisjoint(others):
            expected = "files of one split alone" if members else "it in a file's name"
            shown = ", ".join(files[file] for file in members or files)
            raise ValueError(
                f"split '{split}': expected {expected}, found {shown:.200}. Correct the name, or "
                f"say by paths which files are which"
            )
    chosen = {*itertools.chain.from_iterable(selected.values())}
    return selected, [file for file in files if file not in chosen] + list_unread(paths)


def _has_words(name: str, split: str) -> bool:
    """Whether a file's name has the words of a split's, such as `ds-test.v2`, `gsm8k_test`."""
    words, wanted = (" ".join(_words_in(text)) for text in (name, split))
    return bool(wanted) and f" {wanted} " in f" {words} "


def open_rows(place: Place | Path) -> Rows:
    """The rows of one split; without its name those of `train`, or of the only split."""
    place = Place(place) if isinstance(place, Path) else place
    path = str(place.path)
    splits, _ = find_splits(
        path, [place.split] if place.split else [], name=place.name, revision=place.revision
    )
    return pick_split(splits, place.split or default_split(splits, path), path)()


def default_split(splits: Mapping[Any, Any], path: str) -> Any:
    """The split `train`, or the only one; a ValueError if there are several others."""
    if "train" not in splits and None not in splits and len(splits) > 1:
        raise ValueError(f"'{path}' has no split 'train': name one of {', '.join(splits)}")
    return next(split for split in ("train", None, *splits) if split in splits)


def pick_split(splits: Mapping[Any, Any], split: Any, path: str) -> Any:
    """The split of a data set; a ValueError, with the names of all, if there is none."""
    if split not in splits:
        raise ValueError(f"'{path}' has no split '{split}'; it has {', '.join(splits)}")
    return splits[split]


def load_splits(path: str, name: str | None, revision: str | None) -> dict[str, Any]:
    """The splits of a saved data set, or of one on the hub, by name.

    Raises:
        ValueError: the data set cannot be read.
    """
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        if is_saved_dataset(path):
            loaded = datasets.load_from_disk(path)
        else:
            loaded = datasets.load_dataset(path, name, revision=revision)
    except (DatasetsError, OSError, ValueError) as error:
        raise ValueError(
            f"cannot read the data set '{path}': {error}. Correct `path`, or, without a way to the "
            f"hub, save the data set to a folder and name that."
        ) from error
    splits = loaded if isinstance(loaded, dict) else {"train": loaded}
    return {str(split): rows for split, rows in splits.items()}


def read_dataset(dataset: Any, split: str) -> Rows:
    """Every row of a split."""
    return _read_batches(dataset.with_format("arrow").iter(batch_size=1000), split)
