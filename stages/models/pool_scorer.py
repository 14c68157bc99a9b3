"""A policy's samples as rewards score them: equal completions once, one reward after the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from stages.models import ensemble, process_scorer
from stages.models.batch import Group, split_group
from stages.models.device import ComputeConfig
from stages.records import pools
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.rewards import reward_file
from stages.rewards.reward_file import RewardFile

CHUNK = 64
"""Groups that are scored at a time."""
Pool = tuple[Prompt, list[Completion]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """Distinct completions in groups, which share a reading of their prompt."""

    chunks: list[list[Group]]
    rows: list[tuple[Completion, int]]
    """Every completion with the number of the distinct one that it equals."""
    positions: int
    """Tokens that a model reads of all groups."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """What one reward makes of the distinct completions, in the order of their numbers."""

    scores: list[float] = field(default_factory=list)
    disagreement: list[float] = field(default_factory=list)
    """Of an ensemble alone."""
    steps: list[list[float]] = field(default_factory=list)
    """Of a process model, which has no `scores`."""

    def extend(self, other: "Columns") -> None:
        """Add the next completions."""
        self.scores.extend(other.scores)
        self.disagreement.extend(other.disagreement)
        self.steps.extend(other.steps)


def group(problems: Sequence[Pool], row_tokens: int) -> Samples:
    """Each problem's distinct completions in groups that fit a row."""
    parts: list[Group] = []
    rows: list[tuple[Completion, int]] = []
    start = 0
    for prompt, pool in problems:
        firsts, places = pools.distinct(pool)
        one = Group(
            prompt_ids=prompt.prompt_ids,
            completions=[row.completion_ids for row in firsts],
            indices=range(start, start + len(firsts)),
        )
        parts += split_group(one, row_tokens)
        rows += [(row, start + place) for row, place in zip(pool, places, strict=True)]
        start += len(firsts)
    return Samples(
        chunks=[parts[first : first + CHUNK] for first in range(0, len(parts), CHUNK)],
        rows=rows,
        positions=sum(part.length() for part in parts),
    )


def score(
    folder: Path,
    reward: RewardFile,
    seed: int,
    chunks: Iterable[Sequence[Group]],
    compute: ComputeConfig,
    device: torch.device,
) -> Columns:
    """What the model of a reward makes of the groups; it is in memory only meanwhile.

    Args:
        folder: the reward's.
        reward: a reward that is a model.
        seed: of the model.
        chunks: of groups; their numbers rise.
        compute: precision.
        device: where it computes.
    """
    view, found = _load(folder, reward, seed, compute, device), Columns()
    for chunk in chunks:
        found.extend(view(chunk))
    return found


def _load(
    folder: Path, reward: RewardFile, seed: int, compute: ComputeConfig, device: torch.device
) -> Callable[[Sequence[Group]], Columns]:
    path = reward_file.model(folder, seed)
    if reward.model == "process":
        reader = process_scorer.load(path, compute, device)
        return lambda chunk: Columns(steps=process_scorer.completion_steps(reader, chunk))
    model = ensemble.load_scorer(path, reward.aggregate, compute, device)
    several = (path / "0").is_dir()

    def view(chunk: Sequence[Group]) -> Columns:
        found = model(chunk)
        return Columns(
            scores=found.values.tolist(),
            disagreement=found.disagreement.tolist() if several else [],
        )

    return view


def rows(samples: Samples, columns: Mapping[str, Columns], *, decimals: int) -> list[Score]:
    """The row of each completion.

    Args:
        samples: as they were scored.
        columns: of each reward.
        decimals: digits kept.
    """
    return [
        Score(
            id=row.id,
            index=row.index,
            scores={n: round(one.scores[at], decimals) for n, one in columns.items() if one.scores},
            disagreement={
                name: round(one.disagreement[at], decimals)
                for name, one in columns.items()
                if one.disagreement
            },
            steps={
                name: [round(step, decimals) for step in one.steps[at]]
                for name, one in columns.items()
                if one.steps
            },
        )
        for row, at in samples.rows
    ]
