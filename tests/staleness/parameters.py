"""Which stages a parameter can move, by moving it: no list of keys is asked, dvc.yaml's neither.

Every stage's configuration is read as its process reads it, of params.yaml as it is and with one
value changed, for the embedded model and for models of a path, whose facts `auto` follows.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from stages import params as params_file
from stages.auto import Facts
from stages.config import PARAMS_PATH, PRESET, PRESETS_PATH
from stages.params import load_config
from stages.rows import ENTRY_POINTS, TABLES
from stages.tables import GLOBAL_KEYS
from studies import study

FACTS = Facts(
    parameters=494_032_768, positions=32_768, has_chat_template=True, prompt_tokens=300,
    completion_tokens=410, train_prompts=6128, demonstrations=6128,
)  # fmt: skip
MODEL = {"path": "a/model", "revision": "0" * 40}
CONTEXTS: list[tuple[dict[str, Any], Facts | None]] = [
    ({}, None),
    ({"model": MODEL}, FACTS),
    ({"model": MODEL, "engine": "transformers"}, replace(FACTS, positions=4096)),
    ({"model": MODEL}, replace(FACTS, parameters=7 * 10**9, train_prompts=40)),
]
"""What params.yaml may say of a model, and what is measured of it."""
SPLITS = {"sample": ("dev", "test"), "pool": ("{split}", "heldout")}
"""Stages that are given all of `sampling`, and use these: stages/sample.py."""
OWN_KEY = {"gate": "probes"}
"""The key of the studies' own file, where it is not the study's name."""
FILES = (PRESETS_PATH, study.STUDY_PARAMS)
"""Read beside params.yaml."""
Key = tuple[str, ...]
Files = Mapping[Path, Any]
"""The content of presets.yaml and of the studies' own file."""


def leaves(content: Mapping[str, Any], above: Key = ()) -> Iterator[Key]:
    """Every key of a file that has a value and no further keys, rows left out."""
    for name, value in content.items():
        if not above and name in (*TABLES, *GLOBAL_KEYS):
            continue
        if isinstance(value, Mapping):
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name)


def other(value: Any) -> Any:
    """Another value, of the same type where it has one; not always one that is allowed."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + type(value)(1)
    if isinstance(value, list):
        return [*value, other(value[-1] if value else None)]
    if isinstance(value, Mapping):
        name = next(iter(value), "other")
        return dict(value) | {name: other(value.get(name))}
    return {"auto": 5000, None: "none"}.get(value, f"{value}-other")


def with_other(content: Mapping[str, Any], key: Key) -> dict[str, Any]:
    """The content, one value changed."""
    result = deepcopy(dict(content))
    inner = result
    for name in key[:-1]:
        inner = inner[name]
    inner[key[-1]] = other(inner[key[-1]])
    return result


@dataclass(frozen=True)
class Reader:
    """A stage of dvc.yaml."""

    name: str
    entry_point: str
    module: str
    words: tuple[str, ...]

    @staticmethod
    def of_command(name: str, command: str) -> "Reader":
        _, _, module, *words = command.split()
        if module != "stages":
            return Reader(name, module.removeprefix("stages."), module, tuple(words))
        entry_point, *rest = words
        entry_point = entry_point.partition("/")[0]  # `label_own/mine`
        module = ENTRY_POINTS.get(entry_point, entry_point)  # `compare` and `track` are of no row
        return Reader(name, entry_point, f"stages.{module}", tuple(rest))

    def word(self, name: str) -> str | None:
        """What a row says under a name."""
        place = self.words.index(f"--{name}") if f"--{name}" in self.words else None
        return None if place is None else self.words[place + 1]

    def read(self, content: Mapping[str, Any], facts: Facts | None, files: Files) -> str:
        """Its configuration, as text; a ValueError where it is refused."""
        module: Any = importlib.import_module(self.module)
        if not hasattr(module, "Config") and not hasattr(module, "CONFIGS"):  # track
            return ""
        kind = self.entry_point
        of_kind = module.CONFIGS[kind] if hasattr(module, "CONFIGS") else module.Config
        study_name = kind.removeprefix("studies.")
        with pytest.MonkeyPatch.context() as patch:
            contents = {**files, PARAMS_PATH: content}
            for reader in (params_file, study):
                patch.setattr(reader, "read_yaml", lambda path=PARAMS_PATH: contents[path])
                patch.setattr(reader, "read_facts", lambda _: facts)
            if study_name != kind:
                return repr(study.load_study_config(of_kind, OWN_KEY.get(study_name, study_name)))
            named = self.word(PRESET) if PRESET in of_kind.model_fields else None
            result = load_config(of_kind, named, facts)
            if kind in SPLITS:
                used = {item.format(split=self.word("split")) for item in SPLITS[kind]}
                sampling = {name: result.sampling[name] for name in sorted(used)}
                return repr((result.model_copy(update={"sampling": {}}), sampling))
            return repr(result)


class Mover:
    """Readers in each context, as params.yaml is; two with the same words are read once."""

    def __init__(self, readers: Iterable[Reader], content: Mapping[str, Any], files: Files) -> None:
        self.files = files
        self.names: dict[tuple[str, ...], list[str]] = {}
        of_words: dict[tuple[str, ...], Reader] = {}
        for reader in readers:
            words = (reader.entry_point, reader.word(PRESET) or "", reader.word("split") or "")
            of_words.setdefault(words, reader)
            self.names.setdefault(words, []).append(reader.name)
        self.contexts: list[tuple[Any, Facts | None, dict[tuple[str, ...], str]]] = []
        for model, facts in CONTEXTS:
            # These parts of params.yaml stay so whatever is changed, but for what is changed.
            parts = {name: {**content[name], **item} if isinstance(item, dict) else item
                     for name, item in model.items()}  # fmt: skip
            base, before = {**content, **parts}, dict[tuple[str, ...], str]()
            for words, reader in of_words.items():
                with suppress(ValueError):  # a row that this context refuses cannot move in it
                    before[words] = reader.read(base, facts, files)
            self.contexts.append((base, facts, before))
        self.readers = of_words

    def list_moved(self, key: Key) -> set[str]:
        """The stages of which a change of the key changes what they are given."""
        moved = set[tuple[str, ...]]()
        for base, facts, before in self.contexts:
            changed = with_other(base, key)
            for words in before.keys() - moved:
                try:
                    is_moved = self.readers[words].read(changed, facts, self.files) != before[words]
                except ValueError:  # it has been read, and refused
                    is_moved = True
                if is_moved:
                    moved.add(words)
        return {name for words in moved for name in self.names[words]}
