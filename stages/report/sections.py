"""Sections of the report: text, tables and plots, the less important ones folded.

Their words and order are in sections.md.j2. A word in backticks is shown as code.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.algorithms.statistics.crossed_means import MIN_SEEDS
from stages.report import markdown, tables
from stages.report.conversations import Conversation
from stages.report.tables import NOTHING, Column, Rows
from stages.report.transcripts import Transcript
from stages.report.verdict import Metrics


@dataclass(frozen=True)
class Image:
    """A plot."""

    file: str
    """Name of the file in `plots/`."""
    alt: str
    """Alternative text, for readers who do not see the image."""


@dataclass(frozen=True)
class CaptionedTable:
    """A table with its caption, which describes the rows and numbers."""

    caption: str
    rows: Rows

    @property
    def columns(self) -> list[str]:
        """Names of the columns that are not empty, in order of appearance."""
        columns = dict.fromkeys(column for row in self.rows for column in row)
        return [column for column in columns if any(row.get(column) for row in self.rows)]

    @property
    def cells(self) -> list[list[str]]:
        """The rows' texts, by column; a dash if a row has none."""
        columns = self.columns
        return [[row.get(column) or NOTHING for column in columns] for row in self.rows]

    @property
    def words(self) -> set[str]:
        """Names of the columns with words; the others have numbers."""
        return {name for row in self.rows for name, cell in row.items() if cell[:1].isalpha()}


@dataclass(frozen=True)
class Section:
    """Text, tables and plots under a heading; a section inside another one is folded.

    Consecutive paragraphs are one block.
    """

    title: str
    blocks: "list[Block]"


Block = str | CaptionedTable | Image | Section | Transcript | Conversation


def drop_empty(blocks: Sequence[Block], *, transcripts: bool = True) -> list[Block]:
    """The blocks without tables that have no rows, and without sections that have only text.

    Args:
        blocks: The blocks of a page or of a section.
        transcripts: Whether transcripts and conversations are kept; else they are dropped, too.
    """
    filled: list[Block] = []
    for block in blocks:
        if isinstance(block, Section):
            inner = drop_empty(block.blocks, transcripts=transcripts)
            if any(not isinstance(item, str) for item in inner):
                filled.append(Section(block.title, inner))
        elif isinstance(block, CaptionedTable):
            filled += [block] if block.rows else []
        elif transcripts or not isinstance(block, Transcript | Conversation):
            filled.append(block)
    return filled


def build_sections(metrics: Metrics, **values: Any) -> list[Section]:
    """The sections of sections.md.j2 with data/report/metrics.json, empty ones included.

    The first, without a title, is the head of the page. `values`: all further variables of the
    template.
    """
    placed = list[Block]()

    def place(*blocks: Block) -> str:
        start = len(placed)
        placed.extend(blocks)
        return "".join(f"\n\n\0{at}\n\n" for at in range(start, len(placed)))

    def words(text: str) -> str:
        return " ".join(text.split())

    def place_table(
        first: str, names: Iterable[str], columns: Sequence[Column], *,
        caption: str = "", caller: Callable[[], str] = str,
    ) -> str:  # fmt: skip
        rows = tables.tabulate(first, names, columns)
        return place(CaptionedTable(words(caption or caller()), rows))

    text = markdown.render_template(
        Path(__file__).with_name("sections.md.j2"), **values,
        m=metrics, t=tables, min_seeds=MIN_SEEDS,
        rows=lambda rows, caller: place(CaptionedTable(words(caller()), rows)),
        table=place_table,
        plot=lambda file, caller: place(Image(file, words(caller()))),
        show=lambda blocks: place(*blocks),
    )  # fmt: skip
    sections = [Section("", blocks := list[Block]())]
    for paragraph in filter(None, map(str.strip, re.split(r"\n\s*\n", text))):
        mark, _, title = " ".join(paragraph.split()).partition(" ")
        if mark in ("##", "###"):
            section = Section(title, blocks := [])
            (sections if mark == "##" else sections[-1].blocks).append(section)
        elif mark.startswith("\0"):
            blocks.append(placed[int(mark[1:])])
        elif blocks and isinstance(before := blocks[-1], str):
            blocks[-1] = f"{before}\n\n{' '.join(paragraph.split())}"
        else:
            blocks.append(" ".join(paragraph.split()))
    return sections
