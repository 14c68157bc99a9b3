"""Check of the files that people bring, by their first rows, before anything runs.

What would stop prepare_data is reported with everything else that is wrong in the plan, and so are
rows that learn from what no problem has: gold answers, or solutions.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from stages.config import PRESET
from stages.records.problems import INSTEAD, NO_SOLUTIONS, BadRow, Problem
from stages.rows import DATA
from stages.sources import containers, preference_files, problem_files, step_files
from stages.sources.catalogue import SourceConfig
from stages.sources.problem_files import NUM_SAMPLE, FileSource, SourceReport
from stages.tables import TableRow

RAW = DATA / "raw"
"""Folder of the files that people bring; DVC notices what changes in it."""
NEEDS_GOLD = ("label_verifier", "label_selection", "steps_completions", "reward_outcome")
"""Entry points that ask the answer checker."""


class SourceContent(NamedTuple):
    """What the first rows of the sources have for learning."""

    has_gold: bool
    has_solutions: bool
    problems: list[str]
    """What is wrong with the files."""


def look_at_source(source: SourceConfig) -> SourceContent:
    """The first rows of the files of a source.

    Data sets of the hub are not looked at: a plan needs no network.
    """
    has_gold = has_solutions = False
    problems = list[str]()
    for item in source if isinstance(source, list) else [source]:
        if not isinstance(item, FileSource) or containers.is_hub_id(item.path):
            has_gold = has_solutions = True
            continue
        first = item.model_copy(update={"limit": NUM_SAMPLE, "share": 1.0})
        try:
            check_places(item)
            for row in problem_files.read_problems(first, SourceReport(path=str(item.path))):
                if isinstance(row, Problem):
                    has_gold = has_gold or row.answer is not None
                    has_solutions = has_solutions or row.solution is not None
        except ValueError as error:
            problems.append(f"data.source: {error}")
    return SourceContent(has_gold, has_solutions, problems)


def check_places(source: FileSource) -> None:
    """Raise a ValueError for a file that is not in data/raw."""
    for file in problem_files.list_local_files(source):
        if not file.is_relative_to(RAW):
            raise ValueError(
                f"expected files in {RAW}, where a change is noticed, found {file}: move it there, "
                f"or link it (ln -s {file.absolute()} {RAW}/)"
            )


def check_people_file(row: TableRow, config: Any) -> Iterator[str]:
    """A file of people's preferences or step labels of whose first rows none can be read."""
    path, preset = DATA / row.words["on"], config.preset
    is_raw = RAW in path.parents and ".." not in path.parts
    if not is_raw or not path.exists():
        return  # the check of the row's words says so
    try:
        if row.entry_point == "label_people":
            columns, ignore = preset.columns, preset.ignore
            first = list(preference_files.read_preferences(path, columns, ignore, NUM_SAMPLE))
        else:
            first = list(
                itertools.islice(step_files.read_solutions(path, preset.format), NUM_SAMPLE)
            )
    except ValueError as error:
        yield f"{row}: {error}"
        return
    bad = [item for item in first if isinstance(item, BadRow)]
    if len(bad) == len(first):
        where = f"{bad[0].file}, line {bad[0].line}"
        yield f"{row}: no row can be read; the first: {where}: {bad[0].reason}"


def check_row(row: TableRow, config: Any, source: SourceContent) -> Iterator[str]:
    """A row that learns from what the sources do not have; nothing of sources that are wrong."""
    if row.entry_point in ("label_people", "steps_people"):
        yield from check_people_file(row, config)
    if source.problems:
        return
    preset: Any = getattr(config, PRESET, None)
    kinds = preset.kinds() if row.entry_point == "reward_rule" else ()
    needs_gold = row.entry_point in NEEDS_GOLD or getattr(preset, "positive_nll_coef", 0)
    if not source.has_gold and ("answer" in kinds or needs_gold):
        yield f"{row}: it learns from right and wrong answers, and {INSTEAD}"
    if not source.has_solutions and row.words.get("on") == "demonstrations":
        yield f"{row}: it imitates demonstrations. {NO_SOLUTIONS}"
