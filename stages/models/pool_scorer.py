"""Pools of completions as models score them: equal ones once, each model in turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from stages.models import process_scorer, scorer
from stages.models.aggregate import Aggregate
from stages.models.batch import Group, split_group
from stages.models.device import ComputeConfig
from stages.records import pools
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt

ENSEMBLE, PROCESS = "ensemble", "process"
Pool = tuple[Prompt, list[Completion]]


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """What one model makes of some completions, in turn."""

    kind: str
    scores: list[float] | None
    """None of a process model."""
    disagreement: list[float] | None
    """Of an ensemble alone."""
    steps: list[list[float]] | None
    """Of a process model alone."""


def groups(
    problems: Sequence[Pool], row_tokens: int
) -> tuple[list[Group], list[tuple[Completion, int]]]:
    """Each problem's distinct completions in groups that fit a row, numbered in reading order.

    Returns:
        The groups, and every completion with the number of the one that it equals.
    """
    parts: list[Group] = []
    rows: list[tuple[Completion, int]] = []
    start = 0
    for prompt, pool in problems:
        firsts, places = pools.distinct(pool)
        group = Group(
            prompt_ids=prompt.prompt_ids,
            completions=[row.completion_ids for row in firsts],
            indices=range(start, start + len(firsts)),
        )
        parts += split_group(group, row_tokens)
        rows += [(row, start + place) for row, place in zip(pool, places, strict=True)]
        start += len(firsts)
    return parts, rows


def load(
    kind: str, path: Path, aggregate: Aggregate, compute: ComputeConfig, device: torch.device
) -> Callable[[Sequence[Group]], View]:
    """A model's view of groups of completions.

    Args:
        kind: the entry's word: `process`, or one whose model has a head of one scalar.
        path: the model's folder.
        aggregate: how an ensemble's scores become one.
        compute: precision.
        device: where it computes.
    """
    if kind == PROCESS:
        reader = process_scorer.load(path, compute, device)
        return lambda chunk: View(
            kind=kind,
            scores=None,
            disagreement=None,
            steps=process_scorer.completion_steps(reader, chunk),
        )
    score = scorer.load(path, aggregate, compute, device)

    def view(chunk: Sequence[Group]) -> View:
        found = score(chunk)
        return View(
            kind=kind,
            scores=found.values.tolist(),
            disagreement=found.disagreement.tolist() if kind == ENSEMBLE else None,
            steps=None,
        )

    return view


def rows(
    completions: Sequence[tuple[Completion, int]],
    views: Sequence[Sequence[View]],
    *,
    decimals: int,
) -> list[Score]:
    """The row of each completion.

    Args:
        completions: with the number of its group of equals, as `groups` numbers them.
        views: of each model, its views of all groups in turn.
        decimals: digits kept.
    """
    scores: dict[str, list[float]] = {}
    disagreement: list[float] | None = None
    steps: list[list[float]] | None = None
    for of_model in views:
        kind = of_model[0].kind
        if kind == PROCESS:
            steps = [one for view in of_model for one in view.steps or []]
        else:
            scores[kind] = [one for view in of_model for one in view.scores or []]
        if kind == ENSEMBLE:
            disagreement = [one for view in of_model for one in view.disagreement or []]
    return [
        Score(
            id=row.id,
            index=row.index,
            scores={kind: round(column[place], decimals) for kind, column in scores.items()},
            disagreement=None if disagreement is None else round(disagreement[place], decimals),
            steps=None if steps is None else [round(one, decimals) for one in steps[place]],
        )
        for row, place in completions
    ]
