"""Counts, lengths and overlaps of prepared rows, for the data card, `auto` and the doctor.

Rows are added one by one, and only the first demonstration is kept, since the rows of a large file
would not fit in memory.
"""

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from stages.records.problems import Demonstration, Prompt
from stages.sources.splitting import SPLITS, normalise_question


def _lengths_by_split() -> "dict[str, array[int]]":
    return {split: array("I") for split in SPLITS}


@dataclass(kw_only=True, slots=True)
class DataSummary:
    """Counts and lengths of the prompts and demonstrations so far."""

    prompt_tokens: "dict[str, array[int]]" = field(default_factory=_lengths_by_split)
    """Lengths of the prompts of each split."""
    completion_tokens: "dict[str, array[int]]" = field(default_factory=dict)
    """Lengths of the demonstrations' completions, by task."""
    completion_lines: int = 0
    """Number of nonempty lines in these completions."""
    questions: dict[str, set[bytes]] = field(
        default_factory=lambda: {name: set() for name in SPLITS}
    )
    """Digests of the questions of each split."""
    largest_id: int = 0
    """Largest token id in any row."""
    longest_prompt: int = 0
    """Number of tokens, over prompts and demonstrations."""
    longest_row: int = 0
    """Number of tokens of the longest prompt, with its completion if it is a demonstration."""
    first_prompt: str = ""
    example: Demonstration | None = None

    def add_prompt(self, split: str, row: Prompt) -> None:
        """Count a prompt."""
        self.prompt_tokens[split].append(len(row.prompt_ids))
        question = normalise_question(row.question).encode("utf-8", "surrogatepass")
        self.questions[split].add(hashlib.blake2b(question, digest_size=16).digest())
        self.largest_id = max(self.largest_id, *row.prompt_ids)
        self.longest_prompt = max(self.longest_prompt, len(row.prompt_ids))
        self.longest_row = max(self.longest_row, len(row.prompt_ids))
        self.first_prompt = self.first_prompt or row.prompt

    def add_demonstration(self, row: Demonstration) -> None:
        """Count a demonstration."""
        self.completion_tokens.setdefault(row.task, array("I")).append(len(row.completion_ids))
        self.completion_lines += sum(bool(line.strip()) for line in row.completion.splitlines())
        self.largest_id = max(self.largest_id, *row.prompt_ids, *row.completion_ids)
        self.longest_prompt = max(self.longest_prompt, len(row.prompt_ids))
        length = len(row.prompt_ids) + len(row.completion_ids)
        self.longest_row = max(self.longest_row, length)
        self.example = self.example or row

    def all_prompt_tokens(self) -> list[int]:
        """Lengths of the prompts of all splits."""
        return [length for lengths in self.prompt_tokens.values() for length in lengths]

    def all_completion_tokens(self) -> list[int]:
        """Lengths of the completions of all tasks."""
        return [length for lengths in self.completion_tokens.values() for length in lengths]

    def describe(self) -> dict[str, Any]:
        """Content for the data card."""
        counts = {split: len(lengths) for split, lengths in self.prompt_tokens.items()}
        tasks = {task: len(lengths) for task, lengths in self.completion_tokens.items()}
        questions = self.questions
        return {
            "counts": counts | {"demonstrations": sum(tasks.values())},
            "demonstrations_by_task": tasks,
            "prompt_tokens": {
                split: length_quantiles(lengths) for split, lengths in self.prompt_tokens.items()
            },
            "completion_tokens": length_quantiles(self.all_completion_tokens()),
            "repeated_questions": {
                split: counts[split] - len(different) for split, different in questions.items()
            },
            "overlaps": {
                f"{first}-{second}": len(questions[first] & questions[second])
                for first, second in combinations(SPLITS, 2)
            },
        }


def length_quantiles(values: Sequence[int]) -> dict[str, int]:
    """Minimum, median, 95th percentile and maximum, by nearest rank: the ceil(share n)-th."""
    if not len(values):
        return {}
    quantiles = np.quantile(values, [0.0, 0.5, 0.95, 1.0], method="inverted_cdf").tolist()
    return dict(zip(("min", "median", "p95", "max"), quantiles, strict=True))
