"""Definition of an environment: `environment.json` in its folder, beside the starts of episodes.

    data/environments/<name>/environment.json     this
    data/environments/<name>/<split>.jsonl        rows of train, dev and test, each with an `id`
    stages/environments/own/<word>.py             a class, which a row names: `on: own/<word>`

A stage that plays in an environment needs only that folder.
"""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from stages.config import Params, check_bounds
from stages.environments import catalogue
from stages.environments.environment import Environment
from stages.environments.limits import EpisodeLimits
from stages.own_modules import load_own_module, restored_settings
from stages.records import lines
from stages.rows import DATA

NAME = "environment.json"
OWN = "own/"
"""Prefix of `on` for an environment that is a user's class."""
FOLDER = "environments/"
"""Prefix of `on` of a row that plays in an environment."""
SPLITS = ("train", "dev", "test")
RAW = DATA / "raw"
Kind = Literal["own", "reasoning_gym", "skyrl_gym", "textarena", "trl", "tinker", "aviary"]
PACKAGES: dict[str, tuple[str, ...]] = {
    "reasoning_gym": ("reasoning-gym",), "skyrl_gym": ("skyrl-gym",), "textarena": ("textarena",),
    "aviary": ("fhaviary",),
}  # fmt: skip
"""Kind -> packages of its environments, by their names in package indexes."""
Factory = Callable[[], Environment]
"""Function that makes the environment of an episode."""
EnvironmentRow = Mapping[str, Any]
"""Argument of `Environment.start`."""


class Starts(Params):
    """Number of starts of each split, for an environment with its own rows."""

    train: int = Field(gt=0)
    dev: int = Field(gt=0)
    test: int = Field(gt=0)


class EnvironmentPreset(EpisodeLimits):
    """Options and limits of an environment: an entry of presets.yaml."""

    starts: Literal["prompts"] | Starts
    """`prompts`: the problems of data/prompts, as rows with keys id, question, answer and message;
    else rows `{"id": "train-3", "index": 3}`, with different indices in all splits."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of a user's environment; else options that its kind documents."""
    num_episodes: int = Field(8, gt=0)
    """Number of episodes per start, in the table `episodes`."""
    temperature: float = Field(1.0, gt=0)
    """Temperature of sampling in the table `episodes`."""

    @field_validator("options")
    @classmethod
    def _options_are_json(cls, options: dict[str, Any]) -> dict[str, Any]:
        for place, value in walk(options):
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{place}: expected a finite number, found {value}")
        check_bounds("options", options)
        return options

    @model_validator(mode="after")
    def _a_turn_fits_the_transcript(self) -> "EnvironmentPreset":
        if self.max_turn_tokens >= self.max_tokens:
            raise ValueError(
                f"max_turn_tokens is {self.max_turn_tokens}, and max_tokens, the limit of prompt "
                f"and turns together, is {self.max_tokens}: raise max_tokens, or lower "
                f"max_turn_tokens"
            )
        return self


class EnvironmentFile(Params):
    """Definition of an environment, without the rows from which episodes start."""

    kind: Kind
    """The stage that made it: `environment_<kind>`."""
    preset: EnvironmentPreset
    own: str | None
    """The user's file in stages/environments/own/, without `.py`; null: none."""
    own_digest: str | None
    """Digest of that file and its imports: an edit changes environment.json, so stages that play
    rerun."""
    packages: dict[str, str]
    """Versions of the packages of the environment."""
    files: dict[str, str] = Field(default_factory=dict)
    """Files in the options -> SHA-256: an edit changes environment.json, too."""


def write_environment(folder: Path, content: EnvironmentFile) -> None:
    """Write `environment.json` into an environment's folder."""
    (folder / NAME).write_text(content.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_environment(folder: Path) -> EnvironmentFile:
    """Definition of the environment in the folder `data/environments/<name>`."""
    path = folder / NAME
    if not path.is_file():
        raise ValueError(
            f"expected an environment in {folder}, found no {NAME}: name a row of the table "
            f"`environments`, as `on: environments/<name>`"
        )
    return EnvironmentFile.model_validate_json(path.read_text(encoding="utf-8"))


def write_rows(folder: Path, split: str, rows: Collection[EnvironmentRow]) -> None:
    """Write the rows from which a split's episodes start."""
    with lines.open_for_lines(folder / f"{split}.jsonl") as file:
        for row in rows:
            file.write(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n")


def read_rows(folder: Path, split: str) -> list[dict[str, Any]]:
    """Rows from which a split's episodes start."""
    path = folder / f"{split}.jsonl"
    if not path.is_file():
        raise ValueError(
            f"expected the rows of split '{split}' in {folder}, found no {path.name}; there is "
            f"{', '.join(SPLITS)}"
        )
    return list(lines.read_lines(path, dict[str, Any]))


def read_versions(kind: str) -> dict[str, str]:
    """Versions of the packages of environments of a kind."""
    return {name: metadata.version(name) for name in PACKAGES.get(kind, ())}


def walk(value: Any, place: str = "options") -> Iterator[tuple[str, Any]]:
    """Every value in nested options, with its place; a ValueError for a key that is not a text.

    JSON has no other keys.
    """
    yield place, value
    if isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(value, Mapping) and not isinstance(key, str):
                raise ValueError(f"{place}: expected texts as keys, found {key!r:.40}")
            yield from walk(item, f"{place}.{key}")


def digest_files(options: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the files in the options; a ValueError for a file outside data/raw."""
    digests = dict[str, str]()
    for word in sorted({value for _, value in walk(options) if isinstance(value, str)}):
        path = Path(word)
        if not path.is_file():
            continue
        if not path.is_relative_to(RAW):
            raise ValueError(
                f"options name the file {word}, whose edits are not noticed: move it into {RAW}"
            )
        digests[word] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


@restored_settings()
def load_factory(file: EnvironmentFile) -> Factory:
    """Function that makes the environment of an episode; a ValueError if its import fails."""
    methods = catalogue.METHODS.get(file.kind)
    make = None if methods is None else load_own_class(file.own or "", methods, file.files)
    return catalogue.make_factory(file.kind, file.preset.options, make)


def load_own_class(word: str, methods: Collection[str], files: Collection[str] = ()) -> type[Any]:
    """The one class with these methods in stages/environments/own/<word>.py.

    `files`: files that it may open, besides those that its rows list.
    """
    module = load_own_module("environments", word, files)
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and all(callable(getattr(value, method, None)) for method in methods)
    ]
    if len(classes) != 1:
        names = ", ".join(value.__name__ for value in classes) or "none"
        raise ValueError(
            f"stages/environments/own/{word}.py: expected one class with the methods "
            f"{' and '.join(methods)}, found {names}"
        )
    return classes[0]
