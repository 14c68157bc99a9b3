"""A policy's samples as rewards score them: equal completions once, one reward after the other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stages.models import process_head, scalar_head
from stages.models.batch import Group, make_groups
from stages.models.device import ComputeConfig
from stages.models.process_head import TokenizedSolution
from stages.records import pools
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.rewards import reward_file
from stages.rewards.reward_file import RewardFile

GROUPS_PER_CHUNK = 64
"""Groups that are scored at a time."""
Pool = tuple[Prompt, list[Completion]]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupedSamples:
    """Distinct completions in groups, which share a reading of their prompt."""

    chunks: list[list[Group]]
    rows: list[tuple[Completion, int]]
    """Every completion with the number of the distinct one that it equals."""
    positions: int
    """Tokens that a model reads of all groups."""


ScoreColumn = list[dict[str, Any]]
"""What one reward makes of each distinct completion, by the names of the fields of `Score`."""


def group_samples(problems: Sequence[Pool], row_tokens: int) -> GroupedSamples:
    """Each problem's distinct completions in groups that fit a row."""
    read: list[tuple[list[int], list[list[int]]]] = []
    rows: list[tuple[Completion, int]] = []
    start = 0
    for prompt, pool in problems:
        firsts, places = pools.deduplicate(pool)
        read.append((prompt.prompt_ids, [row.completion_ids for row in firsts]))
        rows += [(row, start + place) for row, place in zip(pool, places, strict=True)]
        start += len(firsts)
    parts = make_groups(read, row_tokens)
    return GroupedSamples(
        chunks=[
            parts[first : first + GROUPS_PER_CHUNK]
            for first in range(0, len(parts), GROUPS_PER_CHUNK)
        ],
        rows=rows,
        positions=sum(part.length() for part in parts),
    )


def score_chunks(
    folder: Path,
    reward: RewardFile,
    seed: int,
    chunks: Sequence[Sequence[Group]],
    compute: ComputeConfig,
    device: torch.device,
    decimals: int,
    first: int = 0,
) -> Iterator[ScoreColumn]:
    """What a reward's model of a seed makes of each chunk from number `first` on.

    The model is in memory only meanwhile.
    """
    path = reward_file.model(folder, seed)
    if reward.model == "process":
        scorer = process_head.load_process_scorer(path, compute, device)
        for chunk in chunks[first:]:
            solutions = [
                TokenizedSolution(prompt_ids=group.prompt_ids, steps=scorer.split(ids))
                for group in chunk
                for ids in group.completions
            ]
            yield [
                {"steps": [round(step, decimals) for step in steps]} for steps in scorer(solutions)
            ]
        return
    model = scalar_head.load_scorer(path, reward.aggregate, compute, device)
    names = (
        ("scores", "disagreement")
        if len(scalar_head.find_member_folders(path)) > 1
        else ("scores",)
    )
    for chunk in chunks[first:]:
        scores = model(chunk)
        yield [
            {name: round(one, decimals) for name, one in zip(names, numbers, strict=False)}
            for numbers in zip(scores.values.tolist(), scores.disagreement.tolist(), strict=True)
        ]


def score_rows(samples: GroupedSamples, columns: Mapping[str, ScoreColumn]) -> list[Score]:
    """The row of each completion of `samples`, from the columns of each reward."""
    found = []
    for row, at in samples.rows:
        told = {name: column[at] for name, column in columns.items()}
        fields = {
            field: {name: values[field] for name, values in told.items() if field in values}
            for field in ("scores", "disagreement", "steps")
        }
        found.append(Score(id=row.id, index=row.index, **fields))
    return found
