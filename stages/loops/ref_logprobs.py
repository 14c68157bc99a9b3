"""Log-probabilities of completions under the reference, computed once before the first step.

The reference is the initial policy, so training needs no second model in memory.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from stages.loops import work
from stages.models.batch import (
    Batch,
    Group,
    Insertions,
    eval_no_grad,
    freeze_insertions,
    model_batches,
    split_group,
)
from stages.models.device import ComputeConfig
from stages.models.policy import Policy
from stages.records.preferences import Preference, UnpairedExample

Completions = Sequence[tuple[str, list[int], list[int], Insertions]]
"""Completions: problem id, token ids of the prompt, token ids of the completion, and insertions
(tokens of an environment, which do not count)."""


def list_pair_completions(pairs: Iterable[Preference]) -> Completions:
    """Completions of pairs: for each pair the chosen, then the rejected one."""
    return [
        (pair.id, pair.prompt_ids, ids, freeze_insertions(insertions))
        for pair in pairs
        for ids, insertions in (
            (pair.chosen_ids, pair.chosen_insertions),
            (pair.rejected_ids, pair.rejected_insertions),
        )
    ]


def list_unpaired_completions(rows: Iterable[UnpairedExample]) -> Completions:
    """Completions of unpaired examples."""
    return [(row.id, row.prompt_ids, row.completion_ids, ()) for row in rows]


def compute(model: Policy, completions: Completions) -> Float[Tensor, " completion"]:
    """log p of each completion; equal completions of a problem are computed once."""
    groups, numbers = group_by_problem(completions, model.compute.row_tokens)
    return sequence_logprobs_no_grad(model, groups)[numbers]


def count_passes(completions: Completions, config: ComputeConfig) -> dict[str, int]:
    """Passes of the initial policy in `compute`, as metrics (see `work`)."""
    return count_read_passes(group_by_problem(completions, config.row_tokens)[0])


def group_by_problem(rows: Completions, row_tokens: int) -> tuple[list[Group], list[int]]:
    """Distinct completions of each problem in groups that fit a row, and the number of each row's.

    Distinct completions are numbered in the order of the groups.
    """
    prompts = {name: prompt_ids for name, prompt_ids, *_ in rows}
    completions: dict[str, dict[Any, None]] = {name: {} for name in prompts}
    for name, _, ids, insertions in rows:
        completions[name][tuple(ids), insertions] = None
    groups: list[Group] = []
    numbers: dict[Any, int] = {}
    for name, of_problem in completions.items():
        group = Group(
            prompt_ids=prompts[name],
            completions=[list(ids) for ids, _ in of_problem],
            indices=range(len(numbers), len(numbers) + len(of_problem)),
            insertions=[insertions for _, insertions in of_problem],
        )
        groups += split_group(group, row_tokens)
        numbers |= {(name, item): len(numbers) + place for place, item in enumerate(of_problem)}
    return groups, [numbers[name, (tuple(ids), places)] for name, _, ids, places in rows]


def sequence_logprobs_no_grad(
    model: Policy, groups: Sequence[Group]
) -> Float[Tensor, " completion"]:
    """log p of every completion of the groups, by number in `indices`; in eval mode, on the CPU."""
    sums = torch.zeros(sum(len(group.completions) for group in groups))
    with eval_no_grad(model):
        for batch in model_batches(model, groups):
            sums[batch.indices] = sequence_logprobs(model, batch).cpu()
    return sums


def count_read_passes(groups: Sequence[Group]) -> dict[str, int]:
    """The policy's passes in `sequence_logprobs_no_grad` of groups that fit a row, as metrics."""
    positions = sum(group.length() for group in groups)
    outputs = sum(len(ids) for group in groups for ids in group.completions)
    return work.count_passes("policy", "read", positions=positions, outputs=outputs)


def sequence_logprobs(model: Policy, batch: Batch) -> Float[Tensor, " batch"]:
    """log p of each completion, summed over its tokens."""
    return model(batch, temperature=1.0, entropy=False).logprobs.sum(1)
