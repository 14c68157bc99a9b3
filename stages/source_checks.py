"""Check of the files that people bring, before anything runs.

What would stop prepare_data or a labelling stage is reported with everything else that is wrong in
the plan, and so are rows that learn from what no problem has: gold answers, or solutions. Files are
read whole; of more than `MAX_WHOLE_BYTES` the first rows are, and `describe_partly_read` says so.
Data sets of the hub are not looked at: a plan needs no network.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stages import own_modules
from stages.config import PRESET
from stages.records.problems import INSTEAD, NO_SOLUTIONS, BadRow, Problem
from stages.rewards import answer_checker
from stages.rows import DATA
from stages.sources import containers, preference_files, problem_files, quarantine, step_files
from stages.sources.catalogue import PreparationConfig, SourceConfig
from stages.sources.own_rows import OwnSource
from stages.sources.problem_files import NUM_SAMPLE, FileSource, SourceReport
from stages.tables import TableRow, check_opened_files

RAW = DATA / "raw"
"""Folder of the files that people bring; DVC notices what changes in it."""
NEEDS_GOLD = ("label_verifier", "label_selection", "steps_completions", "reward_outcome")
"""Entry points that ask the answer checker."""
READS_PEOPLE = ("label_people", "steps_people")
MAX_WHOLE_BYTES = 4 * 2**20
"""Of all files of a source or row together: about a second."""


class SourceContent(NamedTuple):
    """What the rows of the sources have for learning."""

    has_gold: bool
    has_solutions: bool
    problems: list[str]
    """What is wrong with the files."""
    looked_at: str = ""
    """Which rows, where it is not all."""


def choose_limit(files: Sequence[Path]) -> int | None:
    """How many rows of each split are read; None: all."""
    return None if sum(file.stat().st_size for file in files) <= MAX_WHOLE_BYTES else NUM_SAMPLE


def look_at_source(section: PreparationConfig) -> SourceContent:
    """What the files of the sources have, and what is wrong with them."""
    has_gold = has_solutions = False
    problems, looked_at = list[str](), ""
    bad, num_rows = list[BadRow](), 0
    are_whole = len(list_file_sources(section.source)) > 0  # generated problems are not read
    for item in list_file_sources(section.source):
        if containers.is_hub_id(item.path):
            has_gold = has_solutions = True
            are_whole = False
            continue
        try:
            files = check_places(item)
            limit = choose_limit(files)
            looked_at = looked_at or describe_limit(limit)
            limits = [number for number in (limit, item.limit) if number is not None]
            read = item.model_copy(update={"limit": min(limits, default=None), "share": 1.0})
            report = SourceReport(path=str(item.path))
            rows = list(problem_files.read_problems(read, report))
        except ValueError as error:
            problems.append(f"data.source: {error}")
            continue
        bad += [row for row in rows if isinstance(row, BadRow)]
        num_rows, are_whole = num_rows + len(rows), are_whole and limit is None
        solved = [row for row in rows if isinstance(row, Problem)]
        has_gold = has_gold or any(row.answer is not None for row in solved)
        has_solutions = has_solutions or any(row.solution is not None for row in solved)
        problems += _find_unstated(solved, section, report.columns)
    if are_whole and not problems and list_file_sources(section.source):
        try:
            share = section.max_bad_share
            quarantine.check_share(bad, num_rows, max_share=share, limit="data.max_bad_share")
        except ValueError as error:
            problems.append(f"data.source: {error}")
    if not list_file_sources(section.source):
        has_gold = has_solutions = True
    if isinstance(section.source, OwnSource):
        problems += check_own_source(section.source)
    return SourceContent(has_gold, has_solutions, problems, looked_at)


def check_own_source(source: OwnSource) -> Iterator[str]:
    """Files of the user's source that are not there; it is run when its rows are read."""
    word = own_modules.get_own_word(source.kind)
    if not Path(file := f"stages/sources/own/{word}.py").is_file():
        yield f"data.source.kind: there is no {file}: posttrain new source {word} writes it"
    yield from check_opened_files("data.source", source.files)


def _find_unstated(
    problems: Sequence[Problem], section: PreparationConfig, columns: Mapping[str, str]
) -> Iterator[str]:
    """That the answer checker reads too few final answers in solutions: prepare_data would stop."""
    texts = [(row.solution, row.answer) for row in problems if row.solution and row.answer]
    forms = section.checked_forms
    unread = [repr(text[-60:]) for text, gold in texts
              if not answer_checker.states_an_answer(text, gold, forms)]  # fmt: skip
    try:
        answer_checker.check_readable_share(len(texts) - len(unread), unread)
    except ValueError as error:
        field = "solution" if "solution" in columns else "assistant"
        name = columns.get(field, "messages")
        yield (
            f"data.source: {error}. Where nothing imitates solutions, ignore: [{name}]; a template "
            f'completes them, as columns: {{.., {field}: "{{{name}}}\\n#### {{<answer>}}"}}'
        )


def list_file_sources(source: SourceConfig) -> list[FileSource]:
    """The sources that are files or data sets of the hub; none of generated problems."""
    sources = source if isinstance(source, list) else [source]
    return [item for item in sources if isinstance(item, FileSource)]


def describe_limit(limit: int | None) -> str:
    """Words on rows that are not all."""
    return "" if limit is None else f" (seen in the first {limit} rows of each split)"


def check_places(source: FileSource) -> list[Path]:
    """The files of a source; a ValueError for one that is not in data/raw."""
    files = problem_files.list_local_files(source)
    for file in files:
        if not file.is_relative_to(RAW):
            raise ValueError(
                f"expected files in {RAW}, where a change is noticed, found {file}: move it there, "
                f"or link it (ln -s {file.absolute()} {RAW}/)"
            )
    return files


def check_people_file(row: TableRow, config: Any) -> Iterator[str]:
    """A file of people's preferences or step labels that its stage would refuse."""
    path, preset = DATA / row.words["on"], config.preset
    is_raw = RAW in path.parents and ".." not in path.parts
    if not is_raw or not path.exists():
        return  # the check of the row's words says so; nothing is fetched from the hub
    try:
        place = containers.Place(path, preset.name, preset.split, preset.revision)
        limit, report = choose_limit(containers.list_files(str(path))), SourceReport(path=str(path))
        if row.entry_point == "label_people":
            columns, ignore = preset.columns, preset.ignore
            parsed = preference_files.read_preferences(
                place, columns, ignore, limit, where=preset.where, report=report
            )
            rows = list(parsed)
        else:
            solutions = step_files.read_solutions(
                place, preset.format, preset.ignore, where=preset.where, report=report
            )
            rows = list(itertools.islice(solutions, limit))
        bad = [item for item in rows if isinstance(item, BadRow)]
        if limit is None:
            preset.left_out(row.words[PRESET], bad, [], report.rows["unsplit"])
    except ValueError as error:
        yield f"{row}: {error}"
        return
    # Of the first rows alone, ties and lone answers may be all there are.
    wrong = [item for item in bad if limit is None or not quarantine.is_harmless(item)]
    if bad and len(wrong) == len(rows):
        where = f"{bad[0].file}, line {bad[0].line}"
        yield f"{row}: no row can be read; the first: {where}: {bad[0].reason}"


def describe_partly_read(source: SourceConfig, rows: Iterable[TableRow]) -> Iterator[str]:
    """A line for each source and row whose files are so large that the first rows are checked."""
    places = [
        ("data.source", problem_files.list_local_files(item)) for item in list_file_sources(source)
    ]
    places += [
        (str(row), containers.list_files(str(DATA / row.words["on"])))
        for row in rows
        if row.entry_point in READS_PEOPLE and (DATA / row.words["on"]).is_relative_to(RAW)
    ]
    for place, files in places:
        if (limit := choose_limit(files)) is not None:
            size = sum(file.stat().st_size for file in files) / 2**20
            yield f"{place}: {size:.0f} MiB, of which the first {limit} rows were checked"


def check_row(row: TableRow, config: Any, source: SourceContent) -> Iterator[str]:
    """A row that learns from what the sources do not have; nothing of sources that are wrong."""
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
