"""Check of the user's data files, before anything runs.

It reports, with all other errors of the plan, columns and files that prepare_data or a labelling
stage would refuse, and rows that need gold answers or solutions which the data lack. The number of
bad rows, and whether the answer checker can read the solutions, are left to those stages. Of files
larger than `MAX_WHOLE_BYTES` only the first rows are read. Data sets of the hub are not checked: a
plan needs no network.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stages import own_modules
from stages.config import PRESET
from stages.records.problems import INSTEAD, NO_SOLUTIONS, Problem
from stages.rows import DATA
from stages.sources import containers, preference_files, problem_files, step_files
from stages.sources.catalogue import SourceConfig
from stages.sources.own_rows import OwnSource
from stages.sources.problem_files import NUM_SAMPLE, FileSource, SourceReport
from stages.tables import TableRow, check_opened_files, describe_absence

RAW = DATA / "raw"
"""Folder of the user's data files, in which DVC notices changes."""
NEEDS_GOLD = ("label_verifier", "label_selection", "steps_completions", "reward_outcome")
"""Entry points that use the answer checker."""
READS_PEOPLE = ("label_people", "steps_people")
MAX_WHOLE_BYTES = 4 * 2**20
"""Size of all files of a source or row together that takes about a second to read."""
PACKING = 10
"""Size of rows in proportion to that of a packed or parquet file."""


class SourceContent(NamedTuple):
    """Content of the sources that training can use."""

    has_gold: bool
    has_solutions: bool
    problems: list[str]
    """Errors in the files."""
    looked_at: str = ""
    """Description of the rows that were read, if not all."""


def choose_limit(files: Sequence[Path]) -> int | None:
    """Number of rows of each split to read; None: all."""
    packed = (*containers.NAMES["packed"], ".parquet")
    sizes = [file.stat().st_size * (PACKING if file.suffix in packed else 1) for file in files]
    return None if sum(sizes) <= MAX_WHOLE_BYTES else NUM_SAMPLE


def look_at_source(source: SourceConfig) -> SourceContent:
    """Content of the files of the sources, and errors in them."""
    sources = source if isinstance(source, list) else [source]
    file_sources = [item for item in sources if isinstance(item, FileSource)]
    # Generated problems and data sets of the hub are assumed to have everything.
    is_unread = not file_sources or any(containers.is_hub_id(item.path) for item in file_sources)
    has_gold = has_solutions = is_unread
    problems, looked_at = list[str](), ""
    for item in file_sources:
        if containers.is_hub_id(item.path):
            continue
        try:
            limit = choose_limit(check_places(item))
            limits = [number for number in (limit, item.limit) if number is not None]
            read = item.model_copy(update={"limit": min(limits, default=None), "share": 1.0})
            rows = list(problem_files.read_problems(read, SourceReport(path=str(item.path))))
        except ValueError as error:
            problems.append(f"data.source: {error}")
            continue
        if limit is not None:
            looked_at = f" (seen in the first {limit} rows of each split)"
        solved = [row for row in rows if isinstance(row, Problem)]
        has_gold = has_gold or any(row.answer is not None for row in solved)
        has_solutions = has_solutions or any(row.solution is not None for row in solved)
    if isinstance(source, OwnSource):
        problems += check_own_source(source)
    return SourceContent(has_gold, has_solutions, problems, looked_at)


def check_own_source(source: OwnSource) -> Iterator[str]:
    """Missing files of the user's source, which itself runs only when its rows are read."""
    word = own_modules.get_own_word(source.kind)
    if word and not (file := Path(f"stages/sources/own/{word}.py")).is_file():
        yield f"data.source.kind: {describe_absence(file, 'source', word)}"
    yield from check_opened_files("data.source", source.files)


def check_places(source: FileSource) -> list[Path]:
    """The files of a source; a ValueError for a file outside data/raw."""
    files = problem_files.list_local_files(source)
    for file in files:
        if not file.is_relative_to(RAW):
            raise ValueError(
                f"expected files in {RAW}, where a change is noticed, found {file}: move it there, "
                f"or link it (ln -s {file.absolute()} {RAW}/)"
            )
    return files


def check_people_file(row: TableRow, config: Any) -> Iterator[str]:
    """Errors in a file of people's preferences or step labels."""
    path, preset = DATA / row.words["on"], config.preset
    is_raw = RAW in path.parents and ".." not in path.parts
    if not is_raw or not path.exists():
        return  # reported by the check of the row's words; nothing is fetched from the hub
    try:
        place = containers.Place(path, preset.name, preset.split, preset.revision)
        limit = choose_limit(containers.list_files(str(path)))
        if row.entry_point == "label_people":
            columns, ignore = preset.columns, preset.ignore
            list(
                preference_files.read_preferences(place, columns, ignore, limit, where=preset.where)
            )
        else:
            solutions = step_files.read_solutions(
                place, preset.format, preset.ignore, where=preset.where
            )
            list(itertools.islice(solutions, limit))
    except ValueError as error:
        yield f"{row}: {error}"


def check_row(row: TableRow, config: Any, source: SourceContent) -> Iterator[str]:
    """Errors of a row that needs data which the sources lack; none if the sources have errors."""
    if row.entry_point in READS_PEOPLE:
        yield from check_people_file(row, config)
    if source.problems:
        return
    preset: Any = getattr(config, PRESET, None)
    kinds = preset.kinds() if row.entry_point == "reward_rule" else ()
    coefs = ("positive_nll_coef", "reward_coef")
    needs_gold = row.entry_point in NEEDS_GOLD or any(getattr(preset, key, 0) for key in coefs)
    if not source.has_gold and ("answer" in kinds or needs_gold):
        yield f"{row}: it learns from right and wrong answers, and {INSTEAD}{source.looked_at}"
    if not source.has_solutions and row.words.get("on") == "demonstrations":
        yield f"{row}: it imitates demonstrations. {NO_SOLUTIONS}{source.looked_at}"
