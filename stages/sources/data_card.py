"""The data card: what the prepared data is, in numbers that can be checked."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from stages.records.problems import Demonstration, Prompt
from stages.sources.splitting import normalise


def describe(
    prompts: Mapping[str, Sequence[Prompt]], demonstrations: Sequence[Demonstration]
) -> dict[str, Any]:
    """Counts, token lengths and overlaps of the splits."""
    prompt_lengths = {
        split: lengths([len(row.prompt_ids) for row in rows]) for split, rows in prompts.items()
    }
    completion_lengths = lengths([len(row.completion_ids) for row in demonstrations])
    return {
        "counts": {split: len(rows) for split, rows in prompts.items()}
        | {"demonstrations": len(demonstrations)},
        "demonstrations_by_task": dict(Counter(row.task for row in demonstrations)),
        "prompt_tokens": prompt_lengths,
        "completion_tokens": completion_lengths,
        "repeated_questions": {
            split: len(rows) - len(_questions(rows)) for split, rows in prompts.items()
        },
        "overlaps": {
            f"{left}-{right}": len(_questions(prompts[left]) & _questions(prompts[right]))
            for left, right in combinations(prompts, 2)
        },
    }


def lengths(values: Sequence[int]) -> dict[str, int]:
    """Smallest, median, 95th percentile and largest, by nearest rank (all whole numbers)."""
    ordered = sorted(values)
    if not ordered:
        return {}
    ranks = {"min": 0.0, "median": 0.5, "p95": 0.95, "max": 1.0}
    # Nearest rank: the ceil(share * n)-th smallest value.
    return {
        name: ordered[max(-int(-share * len(ordered) // 1), 1) - 1] for name, share in ranks.items()
    }


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the files `names` in `folder`, and of every file in those that are folders."""
    files = [
        file
        for path in (folder / name for name in names)
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.is_file()
    ]
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def _questions(rows: Sequence[Prompt]) -> set[str]:
    return {normalise(row.question) for row in rows}
