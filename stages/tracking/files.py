"""Which of a stage's outputs are worth a copy in MLflow: small files, a sample of rows, models."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages.tracking.lockfile import Entry

SUFFIXES = {".md", ".png", ".svg", ".csv", ".json", ".html", ".txt"}
MAX_BYTES = 4_000_000
TABLES = {"rollouts.jsonl", "test.jsonl", "test_greedy.jsonl", "train.jsonl", "verdicts.jsonl"}
"""Files of completions, of which the first rows of the first seed are shown."""
MAX_ROWS = 50


def is_checkpoint(path: Path) -> bool:
    """Whether a folder holds a model (or an adapter) as transformers saves it."""
    return (path / "config.json").is_file() or (path / "adapter_config.json").is_file()


def checkpoints(entry: Entry) -> Iterator[tuple[Path, str]]:
    """(path, digest of the output) of the policy of each seed that the stage trained."""
    for out in entry.outs:
        if out.path.name == "model" and out.path.is_dir():
            seeds = sorted(path for path in out.path.iterdir() if path.name.isdigit())
            yield from ((path, out.digest) for path in seeds if is_checkpoint(path))


def small(entry: Entry) -> Iterator[tuple[Path, str | None]]:
    """(file, folder in the run) of reports, plots, metrics and the run record, none of a model."""
    for out in entry.outs:
        paths = sorted(out.path.rglob("*")) if out.path.is_dir() else [out.path]
        record = out.path == entry.run_folder
        for path in paths:
            if not path.is_file() or inside_a_model(path, out.path):
                continue
            if record or (path.suffix in SUFFIXES and path.stat().st_size <= MAX_BYTES):
                within = path.relative_to(out.path).parent if out.path.is_dir() else Path()
                folder = ("run" / within if record else within).as_posix()
                yield path, None if folder == "." else folder


def inside_a_model(path: Path, top: Path) -> bool:
    """Whether a file of an output is part of a model in it."""
    folders = [folder for folder in path.parents if folder == top or top in folder.parents]
    return any(is_checkpoint(folder) for folder in folders)


def tables(entry: Entry) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """(name, columns) of the first rows of every file of completions, token ids left out."""
    for out in entry.outs:
        if not out.path.is_dir() or out.path == entry.run_folder:
            continue
        seeds = sorted(path for path in out.path.iterdir() if path.name.isdigit())
        for path in sorted(seeds[0].glob("*.jsonl")) if seeds else []:
            if path.name not in TABLES:
                continue
            with path.open(encoding="utf-8") as file:
                rows = [json.loads(line) for line in itertools.islice(file, MAX_ROWS)]
            if rows:
                names = [name for name, value in rows[0].items() if not isinstance(value, list)]
                yield path.stem, {name: [row.get(name) for row in rows] for name in names}
