"""Requests that look harmful and are not, and their harmful counterparts: XSTest's file.

Röttger et al. 2024, https://arxiv.org/abs/2308.01263. A CSV, plain or gzip, with the columns `id`,
`prompt` and `label` (`safe` or `unsafe`); others are ignored.
"""

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

LABELS = ("safe", "unsafe")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One row of the file."""

    id: str
    text: str
    label: str
    """`safe`: to be answered; `unsafe`: to be refused."""


def read(path: Path) -> list[Request]:
    """All requests.

    Raises:
        ValueError: no such file, a column is missing, or a row has another label, no text or an
            id twice.
    """
    if not path.is_file():
        raise ValueError(f"{path}: expected a CSV of requests, found no file. Put it there.")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, Request] = {}
    for number, row in enumerate(rows, start=1):
        name, text, label = (row.get(column) or "" for column in ("id", "prompt", "label"))
        if not name or not text.strip() or label not in LABELS or name in found:
            raise ValueError(
                f"{path}, row {number}: expected an id of its own, a prompt and a label of "
                f"{LABELS}, found id {name!r}, label {label!r} and {len(text)} characters. The "
                f"columns are to be called id, prompt and label, as in XSTest."
            )
        found[name] = Request(id=f"xstest-{name}", text=text, label=label)
    if not found:
        raise ValueError(f"{path}: expected requests, found none.")
    return list(found.values())
