"""Which of a stage's outputs are worth a copy in MLflow: small files, a sample of rows."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages.tracking.lockfile import Entry

SUFFIXES = {".md", ".png", ".svg", ".json", ".html"}
MAX_BYTES = 4_000_000
TABLES = {"rollouts.jsonl", "pool.jsonl", "greedy.jsonl"}
MAX_ROWS = 50


def is_checkpoint(path: Path) -> bool:
    """Whether a folder holds a model (or an adapter) as transformers saves it."""
    return (path / "config.json").is_file() or (path / "adapter_config.json").is_file()


def checkpoints(entry: Entry) -> Iterator[tuple[Path, str]]:
    """(path, digest) of every model among the outputs."""
    for out in entry.outs:
        if is_checkpoint(out.path):
            yield out.path, out.digest


def small(entry: Entry) -> Iterator[tuple[Path, str | None]]:
    """(file, folder in the run) of reports, plots, metrics and the run record.

    Nothing of a model, nor of the models in the folders of an output. What lies in another stage's
    folder, a model card, keeps the name of that folder.
    """
    own = Path("data", *entry.stage.split("@"))
    for out in entry.outs:
        if out.path.name in ("policy", "tokenizer") or is_checkpoint(out.path):
            continue
        if out.path.is_dir():
            paths = sorted(
                path
                for path in out.path.rglob("*")
                if path.is_file() and not is_checkpoint(path.parent)
            )
        else:
            paths = [out.path] if out.path.is_file() else []
        for path in paths:
            record = out.path.name == "run"
            if record or (path.suffix in SUFFIXES and path.stat().st_size <= MAX_BYTES):
                elsewhere = out.path.parts[0] == "data" and own not in out.path.parents
                above = "data" if elsewhere else out.path.parent
                folder = path.parent.relative_to(above).as_posix()
                yield path, None if folder == "." else folder


def tables(entry: Entry) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """(name, columns) of the first rows of every file of completions, token ids left out."""
    for out in entry.outs:
        if out.path.name not in TABLES or not out.path.is_file():
            continue
        with out.path.open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in itertools.islice(file, MAX_ROWS)]
        if rows:
            names = [name for name, value in rows[0].items() if not isinstance(value, list)]
            yield out.path.stem, {name: [row.get(name) for row in rows] for name in names}
