"""A bad input, and how it gets into the working folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

PARAMS = "params.yaml"
PRESETS = "stages/presets.yaml"
Put = Callable[[], object]
"""Puts the bad input into the working folder."""


class Case(NamedTuple):
    """A row of the tables in this folder."""

    given: str
    """What is put in, in words."""
    put: Put


def edit(path: str, change: Callable[[Any], object]) -> Put:
    """A change of a YAML file's content."""

    def put() -> None:
        yaml = YAML(typ="safe")
        content = yaml.load(Path(path).read_text(encoding="utf-8"))
        change(content)
        with Path(path).open("w", encoding="utf-8") as file:
            yaml.dump(content, file)

    return put


def key(place: str, value: Any, path: str = PARAMS) -> Put:
    """A key, such as `grpo.optim.learning_rate`, with this value; ... takes it out."""
    *parents, name = place.split(".")

    def change(content: Any) -> None:
        for parent in parents:
            content = content[parent]
        if value is ...:
            del content[name]
        else:
            content[name] = value

    return edit(path, change)


def row(table: str, name: str, **words: Any) -> Put:
    """A row like `grpo`, or as it is there, with these words; `from_` is `from`."""
    like = {"train": "grpo", "preset": "dapo", "from": "sft", "on": "rewards/rule"}

    def change(content: Any) -> None:
        values = content[table].get(name, like if table == "policies" else {})
        content[table][name] = values | {word.rstrip("_"): item for word, item in words.items()}

    return edit(PARAMS, change)


def text(path: str, old: str, new: str) -> Put:
    """A piece of a file's text, which is there once, in other words."""

    def put() -> None:
        content = Path(path).read_text(encoding="utf-8")
        assert content.count(old) == 1, (path, old)
        Path(path).write_text(content.replace(old, new), encoding="utf-8", newline="")

    return put


def whole(path: str, content: str | bytes) -> Put:
    """A file with this content."""

    def put() -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode("utf-8")
        Path(path).write_bytes(data)

    return put


def recoded(path: str, recode: Callable[[bytes], bytes]) -> Put:
    """A file whose bytes are changed."""
    return lambda: Path(path).write_bytes(recode(Path(path).read_bytes()))


def lines(*rows: Any) -> bytes:
    """JSON lines; text stands as it is."""
    texts = (item if isinstance(item, str) else json.dumps(item) for item in rows)
    return "".join(f"{item}\n" for item in texts).encode("utf-8")


def both(*puts: Put) -> Put:
    """One after the other."""
    return lambda: [put() for put in puts]
