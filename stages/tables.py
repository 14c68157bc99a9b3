"""Rows of the tables in params.yaml and in recipes: their models, and checks of their words.

`plan_checks` checks presets, also against entry points.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field, ValidationInfo, field_validator, model_validator

from stages.config import AUTO, PARAMS_PATH, Params, error_messages, read_yaml, suggest
from stages.own_modules import get_own_word
from stages.rows import BASE, DATA, STAGES, TABLES

Tables = dict[str, dict[str, dict[str, Any]]]
"""Table -> name -> words of the row, in the written order."""
POLICIES, POOLS, PAIRS, STEPS, REWARDS, ENVIRONMENTS, EPISODES = TABLES
GLOBAL_KEYS = ("seeds", "baseline", "tables")
"""Keys of params.yaml that `plan` itself reads."""
PREPARED = ("prompts", "demonstrations")
RAW, HUB, OWN = "raw", "hub", "own"
HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
OWN_SOURCES = {
    REWARDS: Path("stages/rewards/own"), ENVIRONMENTS: Path("stages/environments/own"),
}  # fmt: skip
"""Table -> folder of the user's files for its rows."""
IN_EXPERIMENTS = "for `dvc exp run`, which copies what git knows, `git add` it"
READS = {
    POLICIES: {
        "sft": ("demonstrations", PAIRS, EPISODES), "dpo": (PAIRS,),
        "ppo": (REWARDS, ENVIRONMENTS),
        "grpo": (REWARDS, ENVIRONMENTS, POLICIES, "demonstrations"),
    },
    PAIRS: dict.fromkeys(("verifier", "judge", "revision", "selection", "teacher"), (POOLS,))
    | {"people": (RAW, HUB), "episodes": (EPISODES,), OWN: (POOLS,)},
    STEPS: {"completions": (POOLS,), "people": (RAW, HUB)},
    REWARDS: {
        "rule": ("prompts", REWARDS, OWN), "preference": (PAIRS,), "outcome": (POOLS,),
        "process": (STEPS,),
    },
    ENVIRONMENTS: dict.fromkeys(("own", "trl", "tinker", "aviary"), (OWN,))
    | dict.fromkeys(("reasoning_gym", "skyrl_gym", "textarena"), ("prompts",)),
    EPISODES: dict.fromkeys(("policy", "script"), (ENVIRONMENTS,)),
}  # fmt: skip
"""Table -> its kinds -> the first parts of `on` that the kind's stage can read."""
DEMONSTRATING = ("selection", "revision", "teacher")
"""Kinds of pairs that also write demonstrations for `train: sft`."""
NO_PAIRS = ("selection", "teacher")
"""Those of these kinds that write only demonstrations."""


Word = Annotated[str, Field(min_length=1)]


class FromRow(Params):
    """Row that starts from, samples or queries a policy."""

    policy: Word = Field(alias="from")

    @field_validator("by", "train", check_fields=False)
    @classmethod
    def _is_a_kind(cls, kind: str, info: ValidationInfo) -> str:
        table, own = str(info.context), f"{OWN}/<file>"
        kinds = [own if (table, name) == (PAIRS, OWN) else name for name in READS[table]]
        is_own = own in kinds and get_own_word(kind) is not None
        if not is_own and (kind not in kinds or kind == own):
            choices, remedy = " or ".join(map(repr, kinds)), suggest(kind, kinds, otherwise="")
            raise ValueError(f"expected {choices}, found {kind!a:.103}{remedy}")
        return kind


class PoolRow(FromRow):
    """Completions of a split's problems: `pools`."""

    split: Literal["train", "preference"]
    """Training on the other splits would contaminate the test."""


class PolicyRow(FromRow):
    """A training: `policies`. Its other keys override its section (`split_words`)."""

    train: Word
    preset: Word
    on: Word
    control: Literal["no_effect", "no_skill"] | None = None
    """For a control: what its training must not change, accuracy or skill (`report/controls`)."""


class LabelRow(FromRow):
    """Row that labels or learns from a folder under data/, by a preset: `steps`."""

    by: Word
    preset: Word
    on: Word


class OwnCodeRow(LabelRow):
    """Row that may name a user's code: `rewards`, `environments` and `pairs`."""

    files: list[Word] = Field(default_factory=list[str])
    """Files that a user's code opens, relative to the checkout: dependencies, as its imports
    are."""


class EpisodesRow(FromRow):
    """Conversations with an environment: `episodes`."""

    by: Word
    on: Word
    split: Literal["train", "dev", "test"]
    num_episodes: int | None = Field(None, gt=0)
    """Number of a policy's episodes from each start; None: that of the environment's preset. A
    change here reruns only the episodes, not the policies trained in the environment."""
    temperature: float | None = Field(None, gt=0)
    """Temperature of the policy's sampling; None: that of the environment's preset."""

    @model_validator(mode="after")
    def _a_script_is_played_once(self) -> "EpisodesRow":
        if self.by == "script" and (self.num_episodes, self.temperature) != (None, None):
            raise ValueError(
                "num_episodes and temperature are of `by: policy`; a script plays once"
            )
        return self


MODELS: dict[str, type[Params]] = {
    POLICIES: PolicyRow, POOLS: PoolRow, PAIRS: OwnCodeRow, STEPS: LabelRow, REWARDS: OwnCodeRow,
    ENVIRONMENTS: OwnCodeRow, EPISODES: EpisodesRow,
}  # fmt: skip
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{,99}")


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRow:
    """A row and its table."""

    table: str
    name: str
    words: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.table}.{self.name}"

    @property
    def kind(self) -> str:
        """The method or the labeller (`own` for `own/<file>`); empty for a pool."""
        return self.words.get("train", self.words.get("by", "")).partition("/")[0]

    @property
    def overrides(self) -> dict[str, Any]:
        """Keys of a policy's section whose values the row overrides."""
        return split_words(self.table, self.words)[1]

    @property
    def entry_point(self) -> str:
        """The entry point that makes the row, such as `steps_people`; `pool` for a pool."""
        return STAGES[self.table].removeprefix("label_") + (f"_{self.kind}" if self.kind else "")


def read_tables(paths: Collection[Path]) -> tuple[Tables, list[str]]:
    """The valid rows of these files together, and errors of files and other rows."""
    tables: Tables = {table: {} for table in TABLES}
    problems, files = list[str](), dict[tuple[str, str], Path]()
    for path in paths:
        try:
            content = read_yaml(path)
        except ValueError as error:
            problems.append(str(error))
            continue
        if path != PARAMS_PATH:
            for key in content.keys() - {*TABLES, "tables"}:
                remedy = suggest(key, TABLES, otherwise="; remove it")
                problems.append(f"{path}: {key}: unknown key{remedy}")
        for table in TABLES:
            rows = content.get(table)
            if not isinstance(rows, dict):
                if table in content or path == PARAMS_PATH:
                    problems.append(f"{path}: {table}: expected rows, found {rows!r:.100}")
                continue
            for name, words in rows.items():
                wrong = list(check_row(table, name, words))
                if not wrong and files.setdefault((table, name), path) != path:
                    first = files[table, name]
                    wrong = [f"{table}.{name}: is in {first} and in {path}: remove it from one"]
                tables[table] |= {} if wrong else {name: words}
                problems += wrong
    return tables, problems


def check_row(table: str, name: Any, words: Any) -> Iterator[str]:
    """Errors: a name that is not valid for a folder, and unknown or missing words of a row."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        expected = "a folder's name, of at most 100 letters, digits, `-`, `_`, `.`"
        yield f"{table}: expected {expected}, found {name!a:.103}: rename the row"
        return
    if table == POLICIES and name == BASE:
        yield f"{table}.{name}: '{BASE}' is the model of section `model`; give the row another name"
    place, fields = f"{table}.{name}", MODELS[table].model_fields.items()
    required = [field.alias or key for key, field in fields if field.is_required()]
    if not isinstance(words, dict):
        yield f"{place}: expected {{{', '.join(required)}}}, found {words!r:.100}"
        return
    row_words, overrides = split_words(table, words)
    if table != POLICIES or not row_words.keys() >= {
        *required
    }:  # an unknown key may be a misspelt required one
        row_words, overrides = words, {}
    yield from check_override_values(place, overrides)
    try:
        MODELS[table].model_validate(row_words, context=table)
    except pydantic.ValidationError as error:
        errors = [{**item, "loc": (place, *item["loc"])} for item in error.errors()]
        yield from error_messages(errors, {place: words})


def split_words(table: str, words: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Words of the table's rows, and the other keys."""
    names = {field.alias or key for key, field in MODELS[table].model_fields.items()}
    row_words = {key: value for key, value in words.items() if key in names}
    return row_words, {key: value for key, value in words.items() if key not in names}


def check_override_values(place: str, overrides: dict[str, Any]) -> Iterator[str]:
    """Errors: values that a row's command cannot contain; keys are checked later."""
    for key, value in overrides.items():
        if not isinstance(key, str):
            yield f"{place}: expected text as a key, found {key!r:.100}"
        elif isinstance(value, dict) and value:
            yield from check_override_values(f"{place}.{key}", value)
        elif isinstance(value, bool) or not isinstance(value, int | float | str) or value == AUTO:
            yield f"{place}.{key}: expected a number or a word, found {value!r:.100}"


def check_names(tables: Tables) -> Iterator[str]:
    """Errors: words that name no policy, folder or file, and rows that need each other.

    A control is compared, only on test problems, with the policy that it starts from.
    """
    policies = [BASE, *tables[POLICIES]]
    for row in list_rows(tables):
        policy = row.words["from"]
        if policy not in policies:
            yield f"{row}.from: there is no policy {policy!a:.103}{suggest(policy, policies)}"
        if row.table != POOLS and (problem := check_source(row, tables)):
            yield f"{row}.on: {problem}"
        yield from check_files(row)
        if row.table == POLICIES and row.words.get("control") and policy == BASE:
            yield (
                f"{row}.from: a control is compared with the policy that it starts from, and "
                f"'{BASE}' is not evaluated: name a row of {POLICIES}"
            )
        if row.table == EPISODES and tables[POLICIES].get(policy, {}).get("control"):
            yield (
                f"{row}.from: '{policy}' is a control, which is only compared on test problems: "
                f"remove its key `control`, or this row"
            )
    for table, rows in tables.items():
        lower: dict[str, str] = {}
        for name in rows:
            if (first := lower.setdefault(name.lower(), name)) != name:
                yield f"{table}.{name}: differs from '{first}' only in capitals; rename it"
    yield from check_episodes(tables)
    yield from find_cycles(tables)


def check_files(row: TableRow) -> Iterator[str]:
    """Errors: missing files of the user's, or files in a row without code."""
    files, on = row.words.get("files", ()), row.words.get("on", "")
    if files and get_own_word(on) is None and get_own_word(row.words.get("by")) is None:
        yield f"{row}.files: expected no files, since `on: {on}` names no code of yours"
    else:
        yield from check_opened_files(str(row), files)
    labeller = get_own_word(row.words.get("by"))
    if labeller and not (file := OWN_SOURCES[REWARDS] / f"{labeller}.py").is_file():
        yield f"{row}.by: {describe_absence(file, 'labeller', labeller)}"


def describe_absence(file: Path, kind: str, word: str) -> str:
    """Words on a file of the user's that is not there."""
    return f"there is no {file}: posttrain new {kind} {word} writes it; {IN_EXPERIMENTS}"


def check_opened_files(place: str, files: Collection[str]) -> Iterator[str]:
    """Errors: files under the key `files` of a row or source that are missing, or are outputs."""
    for name in files:
        path = Path(name).expanduser()
        if path.is_relative_to(DATA) and not path.is_relative_to(DATA / RAW):
            yield (
                f"{place}.files: {name!a:.103} is an output: those of data/prompts may be read "
                f"without a line here, others not. Remove it"
            )
        elif not path.is_file():
            yield (
                f"{place}.files: expected a file, by its path in the checkout, found "
                f"{name!a:.103}: put it there, or correct its name"
            )


def check_episodes(tables: Tables) -> Iterator[str]:
    """Errors: episodes from an environment's test starts that cannot be compared."""
    first_rows, rows_by_policy = dict[str, TableRow](), dict[tuple[str, str], TableRow]()
    for row in list_rows({EPISODES: tables[EPISODES]}):
        if row.kind != "policy" or row.words["split"] != "test":
            continue
        on, policy = row.words["on"], row.words["from"]
        first = first_rows.setdefault(on, row)
        for key in ("num_episodes", "temperature"):
            if row.words.get(key) != first.words.get(key):
                yield (
                    f"{row}.{key}: expected that of {first}, since the policies that play from the "
                    f"test starts of '{on}' are compared, found {row.words.get(key)} and "
                    f"{first.words.get(key)}: set both to the same value"
                )
        if (other := rows_by_policy.setdefault((on, policy), row)) is not row:
            yield (
                f"{row}: plays the policy '{policy}' from the test starts of '{on}', as {other} "
                f"does, and the report has one row for each policy: remove one of them"
            )


def check_source(row: TableRow, tables: Tables) -> str | None:
    """Error in the word `on`; None: there is none."""
    on, kinds, problem = row.words["on"], READS[row.table][row.kind], None
    kind, _, name = on.partition("/")
    folders = list_sources(tables, kinds, OWN_SOURCES.get(row.table))
    split = tables[EPISODES].get(name, {}).get("split") if kind == EPISODES else "train"
    by = tables[PAIRS].get(name, {}).get("by") if kind == PAIRS else None
    if kind == HUB and kind in kinds:
        if HUB_ID.fullmatch(name) is None:
            problem = f"expected {HUB}/<owner>/<name>, the id of a data set, found {name!a:.103}"
    elif kind == RAW and kind in kinds:
        path = DATA / on
        if DATA / RAW not in path.parents or ".." in path.parts or not path.exists():
            problem = f"there is no file or folder {path}: put it there, or correct its name"
    elif kind not in kinds and on in list_sources(tables, (*PREPARED, *TABLES)):
        problem = f"{row.entry_point} cannot read '{on}'; it reads {' or '.join(kinds)}"
    elif on not in folders and HUB in kinds:
        problem = (
            f"expected a file in {DATA / RAW} (`{RAW}/<file>`) or a data set of the hub "
            f"(`{HUB}/<owner>/<name>`), found {on!a:.103}"
        )
    elif on not in folders and kind == OWN and kind in kinds:
        path = OWN_SOURCES[row.table] / name
        problem = (
            f"there is no file {ascii(str(path))[1:-1]:.103}.py: write it; {IN_EXPERIMENTS}"
            f"{suggest(on, folders)}"
        )
    elif on not in folders:
        problem = f"no row makes {on!a:.103}{suggest(on, folders)}"
    elif split != "train":
        problem = f"'{on}' has `split: {split}`: training needs episodes with `split: train`"
    elif by is not None and row.kind == "sft" and by not in DEMONSTRATING:
        makers = " and ".join(DEMONSTRATING)
        problem = f"'{on}', by {by}, holds no demonstrations; {makers} do"
    elif by in NO_PAIRS and row.kind != "sft":
        problem = f"'{on}', by {by}, holds demonstrations and no pairs"
    elif by == "episodes" and row.kind != "dpo":
        problem = f"'{on}', by {by}, holds pairs of episodes, from which only `train: dpo` learns"
    return problem


def list_sources(
    tables: Tables, kinds: Collection[str], own_sources: Path | None = None
) -> list[str]:
    """Folders of these kinds that `on` can name, and the user's files in `own_sources`."""
    folders = [f"{table}/{name}" for table in TABLES if table in kinds for name in tables[table]]
    files = sorted(own_sources.glob("[!_]*.py")) if OWN in kinds and own_sources else []
    prepared = [kind for kind in kinds if kind in PREPARED]
    return [*prepared, *folders, *(f"{OWN}/{path.stem}" for path in files)]


def find_cycles(tables: Tables) -> Iterator[str]:
    """Rows that need each other."""
    needs = dict[str, list[str]]()
    for row in list_rows(tables):
        words = [f"{POLICIES}/{row.words['from']}", row.words.get("on", "")]
        parts = [word.partition("/") for word in words]
        needs[f"{row.table}/{row.name}"] = [
            f"{table}/{name}" for table, _, name in parts if name in tables.get(table, {})
        ]
    while True:
        try:
            return TopologicalSorter(needs).prepare()
        except CycleError as error:
            cycle = error.args[1][::-1]
            yield f"rows that need each other: {' -> '.join(cycle)}"
            needs[cycle[0]].remove(cycle[1])


def list_rows(tables: Tables) -> Iterator[TableRow]:
    """Every row of every table."""
    for table, rows in tables.items():
        for name, words in rows.items():
            yield TableRow(table=table, name=name, words=words)
