"""The tables of params.yaml and of recipes, and everything in them that names nothing.

Knows no entry point: which kinds there are, and what their presets may hold, is `configs`.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages import params
from stages.rows import BASE, DATA, TABLES

Tables = dict[str, dict[str, dict[str, str]]]
"""Table -> name -> the words of the row, each in the order in which it is written."""
POLICIES, POOLS, PAIRS, STEPS, REWARDS = TABLES
WORDS = {
    POLICIES: ("train", "preset", "from", "on"), POOLS: ("from", "split"),
    **dict.fromkeys((PAIRS, STEPS, REWARDS), ("by", "preset", "from", "on")),
}  # fmt: skip
STAGES = {POLICIES: "train", POOLS: "pool", PAIRS: "label", STEPS: "steps", REWARDS: "reward"}
"""What the entry points of a table's kinds begin with; that of pools is the whole of it."""
ABOVE = ("seeds", "baseline", "tables")
"""Keys of params.yaml that `plan` itself reads."""
SPLITS = ("train", "preference")
"""Whose problems a pool may answer: what is learned from the others is known before the test."""
PREPARED = ("prompts", "demonstrations")
RAW, OWN = "raw", "own"
OWN_SOURCES = Path("stages/rewards/own")
READS = {
    "train_sft": ("demonstrations", PAIRS),
    **dict.fromkeys(("train_ppo", "train_grpo"), (REWARDS,)),
    **dict.fromkeys(("train_dpo", "reward_preference"), (PAIRS,)),
    **dict.fromkeys(("label_verifier", "label_judge", "label_revision"), (POOLS,)),
    **dict.fromkeys(("label_selection", "steps_completions", "reward_outcome"), (POOLS,)),
    **dict.fromkeys(("label_people", "steps_people"), (RAW,)), "reward_process": (STEPS,),
    "reward_rule": ("prompts", REWARDS, OWN),
}  # fmt: skip
"""The first part of `on`, for each entry point; one that is not here may read anything."""
DEMONSTRATING = ("selection", "revision")
"""Pairs with demonstrations for `train: sft` beside them; those of `selection` are no pairs."""
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{,99}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A row, and where it is."""

    table: str
    name: str
    words: dict[str, str]

    def __str__(self) -> str:
        return f"{self.table}.{self.name}"

    @property
    def entry_point(self) -> str:
        """The module under stages/ that makes the row."""
        if self.table == POOLS:
            return STAGES[POOLS]
        return f"{STAGES[self.table]}_{self.words['train' if self.table == POLICIES else 'by']}"


def read(paths: Collection[Path]) -> tuple[Tables, list[str]]:
    """The rows of these files together, and what is wrong with a file or with the rows left out."""
    tables: Tables = {table: {} for table in TABLES}
    problems: list[str] = []
    for path in paths:
        try:
            content = params.read(path)
        except (OSError, ValueError) as error:
            problems.append(str(error))
            continue
        if path != params.PARAMS_PATH:
            others = [key for key in content if key not in (*TABLES, "tables")]
            problems += [f"{path}: {key}: {unknown(key, TABLES)}" for key in others]
        for table in TABLES:
            rows = content.get(table)
            if not isinstance(rows, dict):
                if table in content or path == params.PARAMS_PATH:
                    problems.append(f"{path}: {table}: expected rows, found {rows!r:.100}")
                continue
            for name, words in rows.items():
                found = list(wrong_words(table, name, words))
                if tables[table].get(name, words) != words:
                    found.append(f"{table}.{name}: has other words in another file than in {path}")
                problems += found
                if not found:
                    tables[table][name] = words
    return tables, problems


def wrong_words(table: str, name: Any, words: Any) -> Iterator[str]:
    """Keys that a row of this table has not, or lacks; names and values that are no words."""
    place = f"{table}.{name}"
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        expected = "as a row's name, that of a folder, at most 100 letters, digits, `-`, `_`, `.`"
        yield f"{table}: expected {expected}, found {name!a:.103}: rename the row"
        return
    if table == POLICIES and name == BASE:
        yield f"{place}: '{BASE}' is the model of section `model`; give the row another name"
    if not isinstance(words, dict):
        yield f"{place}: expected {{{', '.join(WORDS[table])}}}, found {words!r:.100}"
        return
    expected = WORDS[table]
    yield from match([str(key) for key in words], expected, f"{place}.")
    for key, value in words.items():
        if key in expected and not (isinstance(value, str) and value):
            yield f"{place}.{key}: expected a word, found {value!r:.100}"


def wrong_names(tables: Tables, splits: Collection[str] = SPLITS) -> Iterator[str]:
    """Words that name no policy, split, folder or file, and rows that need each other."""
    policies = [BASE, *tables[POLICIES]]
    for place in places(tables):
        if (found := place.words["from"]) not in policies:
            yield f"{place}.from: there is no policy {found!a:.103}{meant(found, policies)}"
        if place.table != POOLS:
            if problem := wrong_source(place, tables):
                yield f"{place}.on: {problem}"
        elif (found := place.words["split"]) not in splits:
            yield f"{place}.split: expected one of {list(splits)}, found {found!a:.103}"
    for table, rows in tables.items():
        known: dict[str, str] = {}
        for name in rows:
            if (other := known.setdefault(name.lower(), name)) != name:
                yield f"{table}.{name}: differs from '{other}' in capitals alone; rename it"
    yield from circles(tables)


def wrong_source(place: Place, tables: Tables) -> str | None:
    """What is wrong with the word `on`, if anything is."""
    on, reader = place.words["on"], place.entry_point
    kind, _, name = on.partition("/")
    reads = READS.get(reader, (*PREPARED, *TABLES, RAW, OWN))
    folders = sources(tables, reads)
    if kind not in reads and on in sources(tables, (*PREPARED, *TABLES)):
        return f"{reader} learns nothing from '{on}'; it reads {' or '.join(reads)}"
    if kind == RAW and RAW in reads:
        missing = f"there is no file {DATA / on}: put it there, or correct its name"
        return None if (DATA / on).is_file() and ".." not in on.split("/") else missing
    if on not in folders:
        return f"no row makes {on!a:.103}{meant(on, folders)}"
    by = tables[PAIRS][name]["by"] if kind == PAIRS else ""
    if by and reader == "train_sft" and by not in DEMONSTRATING:
        return f"'{on}', by {by}, holds no demonstrations; {' and '.join(DEMONSTRATING)} do"
    if by == "selection" and reader != "train_sft":
        return f"'{on}', by {by}, holds demonstrations and no pairs"
    return None


def sources(tables: Tables, kinds: Collection[str]) -> list[str]:
    """Folders of these kinds that a word `on` can name."""
    found = [kind for kind in kinds if kind in PREPARED]
    found += [f"{table}/{name}" for table in TABLES if table in kinds for name in tables[table]]
    own = sorted(OWN_SOURCES.glob("[!_]*.py")) if OWN in kinds else []
    return found + [f"{OWN}/{path.stem}" for path in own]


def circles(tables: Tables) -> Iterator[str]:
    """Rows that need each other, each circle once."""
    done: set[str] = set()

    def visit(place: str, path: list[str]) -> Iterator[str]:
        if place in path:
            circle = [*path[path.index(place) :], place]
            yield f"rows that need each other: {' -> '.join(circle)}"
        if place in done or place in path:
            return
        for other in needs(tables, place):
            yield from visit(other, [*path, place])
        done.add(place)

    for place in places(tables):
        yield from visit(f"{place.table}/{place.name}", [])


def needs(tables: Tables, place: str) -> list[str]:
    """The rows, as `policies/sft`, that make what a row reads."""
    table, _, name = place.partition("/")
    words = tables[table].get(name, {})
    named = [f"{POLICIES}/{words.get('from')}", words.get("on", "")]
    return [one for one in named if one.partition("/")[2] in tables.get(one.partition("/")[0], {})]


def places(tables: Tables) -> Iterator[Place]:
    """Every row."""
    for table, rows in tables.items():
        for name, words in rows.items():
            yield Place(table=table, name=name, words=words)


def match(found: Collection[str], expected: Collection[str], parent: str) -> Iterator[str]:
    """Unknown keys, each with the missing key that it may be meant for; then the other missing."""
    missing = [key for key in expected if key not in found]
    for key in found:
        if key not in expected:
            close = difflib.get_close_matches(key, missing, n=1)
            missing = [other for other in missing if other not in close]
            yield f"{parent}{ascii(key)[1:-1]:.100}: {unknown(key, close)}"
    yield from (f"{parent}{key}: missing; add it" for key in missing)


def unknown(key: str, known: Collection[str]) -> str:
    """`unknown key`, with a remedy."""
    close = difflib.get_close_matches(key, known, n=1)
    return "unknown key" + (f"; did you mean '{close[0]}'?" if close else "; remove it")


def meant(word: str, known: Collection[str] | Mapping[str, Any]) -> str:
    """A remedy: the closest of what there is, or all of it."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; there is {', '.join(known)}" if known else "; there is none at all"


def separators(presets: Mapping[str, Any], rows: Tables) -> Iterator[str]:
    """Process models that would end a step elsewhere than the labels that they learn from."""
    for name, words in rows[REWARDS].items():
        labelled = rows[STEPS].get(words["on"].partition("/")[2])
        if words["by"] == "process" and labelled is not None:
            ends = [presets.get(one["preset"]) for one in (words, labelled)]
            here, there = (one.get("separator") if isinstance(one, dict) else None for one in ends)
            if here and there and here != there:
                yield (
                    f"{REWARDS}.{name}: preset '{words['preset']}' ends a step with {here!r} and "
                    f"'{labelled['preset']}', which made its labels, with {there!r}: take the same"
                )
