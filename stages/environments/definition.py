"""Definition of an environment: `environment.json` in its folder, beside the starts of episodes.

    data/environments/<name>/environment.json     this
    data/environments/<name>/<split>.jsonl        rows of train, dev and test, each with an `id`
    stages/environments/own/<word>.py             a class, which a row names: `on: own/<word>`

Whatever plays in an environment builds it from that folder alone.
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
"""What `on` begins with where the environment is a class of the user's."""
FOLDER = "environments/"
"""What `on` begins with where a row plays in an environment."""
SPLITS = ("train", "dev", "test")
RAW = DATA / "raw"
Kind = Literal["own", "reasoning_gym", "skyrl_gym", "textarena", "trl", "tinker", "aviary"]
PACKAGES: dict[str, tuple[str, ...]] = {
    "reasoning_gym": ("reasoning-gym",), "skyrl_gym": ("skyrl-gym",), "textarena": ("textarena",),
    "aviary": ("fhaviary",),
}  # fmt: skip
"""Kind -> the packages that its environments come from, as package indexes name them."""
Factory = Callable[[], Environment]
"""Makes the environment of one episode."""
EnvironmentRow = Mapping[str, Any]
"""What `Environment.start` takes."""


class Starts(Params):
    """Number of starts of each split, of an environment whose rows are its own."""

    train: int = Field(gt=0)
    dev: int = Field(gt=0)
    test: int = Field(gt=0)


class EnvironmentPreset(EpisodeLimits):
    """Options and limits of an environment: an entry of presets.yaml."""

    starts: Literal["prompts"] | Starts
    """`prompts`: the problems of data/prompts, their rows with keys id, question, answer and
    message; else rows `{"id": "train-3", "index": 3}`, whose indices no two splits share."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of an environment of the user's own; else what its kind documents."""
    num_episodes: int = Field(8, gt=0)
    """Episodes of a start, in table `episodes`."""
    temperature: float = Field(1.0, gt=0)
    """Of sampling in table `episodes`."""

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
    """Everything about an environment but the rows that its episodes start from."""

    kind: Kind
    """The stage that made it: `environment_<kind>`."""
    preset: EnvironmentPreset
    own: str | None
    """The user's file in stages/environments/own/, without `.py`; null: none."""
    own_digest: str | None
    """Of that file and what it imports: an edit changes this file, so what plays in it reruns."""
    packages: dict[str, str]
    """Versions of the packages that the environment comes from."""
    files: dict[str, str] = Field(default_factory=dict)
    """Files that options name -> SHA-256: an edit changes this file, too."""


def write_environment(folder: Path, content: EnvironmentFile) -> None:
    """Write `environment.json` into an environment's folder."""
    (folder / NAME).write_text(content.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_environment(folder: Path) -> EnvironmentFile:
    """The environment of a folder `data/environments/<name>`."""
    path = folder / NAME
    if not path.is_file():
        raise ValueError(
            f"expected an environment in {folder}, found no {NAME}: name a row of the table "
            f"`environments`, as `on: environments/<name>`"
        )
    return EnvironmentFile.model_validate_json(path.read_text(encoding="utf-8"))


def write_rows(folder: Path, split: str, rows: Collection[EnvironmentRow]) -> None:
    """Write the rows that a split's episodes start from."""
    with lines.open_for_lines(folder / f"{split}.jsonl") as file:
        for row in rows:
            file.write(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n")


def read_rows(folder: Path, split: str) -> list[dict[str, Any]]:
    """The rows that a split's episodes start from."""
    path = folder / f"{split}.jsonl"
    if not path.is_file():
        raise ValueError(
            f"expected the rows of split '{split}' in {folder}, found no {path.name}; there is "
            f"{', '.join(SPLITS)}"
        )
    return list(lines.read_lines(path, dict[str, Any]))


def read_versions(kind: str) -> dict[str, str]:
    """Versions of the packages that environments of a kind come from."""
    return {name: metadata.version(name) for name in PACKAGES.get(kind, ())}


def walk(value: Any, place: str = "options") -> Iterator[tuple[str, Any]]:
    """Every value in options, however deep, with its place; a ValueError for a key that is no text.

    JSON holds no other keys.
    """
    yield place, value
    if isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(value, Mapping) and not isinstance(key, str):
                raise ValueError(f"{place}: expected texts as keys, found {key!r:.40}")
            yield from walk(item, f"{place}.{key}")


def digest_files(options: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of the files that options name; a ValueError for one outside data/raw."""
    digests = dict[str, str]()
    for word in sorted({value for _, value in walk(options) if isinstance(value, str)}):
        path = Path(word)
        if not path.is_file():
            continue
        if not path.is_relative_to(RAW):
            raise ValueError(
                f"options name the file {word}, of which no edit is noticed: put it into {RAW}"
            )
        digests[word] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


@restored_settings()
def load_factory(file: EnvironmentFile) -> Factory:
    """What makes the environment of one episode; a ValueError where it cannot be imported."""
    methods = catalogue.METHODS.get(file.kind)
    make = None if methods is None else load_own_class(file.own or "", methods, file.files)
    return catalogue.make_factory(file.kind, file.preset.options, make)


def load_own_class(word: str, methods: Collection[str], files: Collection[str] = ()) -> type[Any]:
    """The class with these methods in stages/environments/own/<word>.py, which has one.

    `files`: those that it may open, besides what its rows list.
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
