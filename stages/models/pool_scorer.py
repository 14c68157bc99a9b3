"""Scores of a pool's completions: each distinct completion once, by one reward after another."""

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
from stages.rewards.reward_file import RewardFile

GROUPS_PER_CHUNK = 64
"""Groups that are scored at a time."""
SampledProblem = tuple[Prompt, list[Completion]]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupedSamples:
    """Distinct completions in groups, which share the forward pass of their prompt."""

    chunks: list[list[Group]]
    rows: list[tuple[Completion, int]]
    """Each completion, with the number of the distinct completion that equals it."""
    positions: int
    """Number of tokens of all groups, each prompt counted once per group."""


ScoreColumn = list[dict[str, Any]]
"""Scores of each distinct completion by one reward, by the names of the fields of `Score`."""


def group_samples(problems: Sequence[SampledProblem], row_tokens: int) -> GroupedSamples:
    """Groups of each problem's distinct completions that fit a row."""
    completions: list[tuple[list[int], list[list[int]]]] = []
    rows: list[tuple[Completion, int]] = []
    start = 0
    for prompt, pool in problems:
        distinct, numbers = pools.deduplicate(pool)
        completions.append((prompt.prompt_ids, [row.completion_ids for row in distinct]))
        rows += [(row, start + number) for row, number in zip(pool, numbers, strict=True)]
        start += len(distinct)
    groups = make_groups(completions, row_tokens)
    starts = range(0, len(groups), GROUPS_PER_CHUNK)
    return GroupedSamples(
        chunks=[groups[first : first + GROUPS_PER_CHUNK] for first in starts],
        rows=rows,
        positions=sum(group.length() for group in groups),
    )


def score_chunks(
    path: Path,
    reward: RewardFile,
    chunks: Sequence[Sequence[Group]],
    compute: ComputeConfig,
    device: torch.device,
    decimals: int,
    first: int = 0,
) -> Iterator[ScoreColumn]:
    """Scores of each chunk from number `first` on, by the model at `path`, with `decimals`.

    The model is freed when the iterator is.
    """
    if reward.model == "process":
        scorer = process_head.load_process_scorer(path, compute, device)
        for chunk in chunks[first:]:
            solutions = [
                TokenizedSolution(prompt_ids=group.prompt_ids, steps=scorer.split(ids))
                for group in chunk
                for ids in group.completions
            ]
            yield [
                {"steps": [round(score, decimals) for score in scores]}
                for scores in scorer(solutions)
            ]
        return
    ensemble = scalar_head.load_ensemble(path, reward.aggregate, compute, device)
    names = ("scores", "disagreement") if len(ensemble.members) > 1 else ("scores",)
    for chunk in chunks[first:]:
        scores = ensemble.score_groups(chunk)
        yield [
            {name: round(number, decimals) for name, number in zip(names, numbers, strict=False)}
            for numbers in zip(scores.values.tolist(), scores.disagreement.tolist(), strict=True)
        ]


def score_rows(samples: GroupedSamples, columns: Mapping[str, ScoreColumn]) -> list[Score]:
    """The row of each completion of `samples`, from the columns of each reward."""
    rows = []
    for completion, number in samples.rows:
        scores = {reward: column[number] for reward, column in columns.items()}
        fields = {
            field: {reward: values[field] for reward, values in scores.items() if field in values}
            for field in ("scores", "disagreement", "steps")
        }
        rows.append(Score(id=completion.id, index=completion.index, **fields))
    return rows
