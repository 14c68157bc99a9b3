"""The reference's log-probabilities of the completions of pairs, computed once.

The reference is the policy before its first step. It depends on the pairs and on nothing
that a loss is set with, so that no change of the loss computes it again.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from stages.loops import work
from stages.models.batch import Batch, Group, micro_batches, split_group
from stages.models.device import ComputeConfig
from stages.models.policy import completion_logprobs
from stages.records.preferences import Preference
from stages.records.ref_logprob import RefLogprob


def sequence_logprobs(model: PreTrainedModel, batch: Batch) -> Float[Tensor, " batch"]:
    """log p of each whole completion."""
    logprobs, _ = completion_logprobs(model, batch, temperature=1.0)
    return logprobs.sum(1)


@torch.no_grad()
def frozen_sums(
    model: PreTrainedModel, groups: Sequence[Group], compute: ComputeConfig, pad_id: int
) -> Float[Tensor, " completion"]:
    """log p of every completion of the groups, in eval mode, at its number in `indices`.

    On the CPU. The model is left in the mode it was in.
    """
    was_training = model.training
    model.eval()
    sums = torch.zeros(sum(len(group.completions) for group in groups))
    for batch in micro_batches(groups, compute, pad_id, model.device):
        sums[batch.indices] = sequence_logprobs(model, batch).cpu()
    model.train(was_training)
    return sums


def frozen_work(model: str, groups: Sequence[Group]) -> dict[str, int]:
    """The passes of `frozen_sums` over groups that fit their rows, as metrics (see `work`)."""
    return work.passed(
        model,
        "read",
        positions=sum(group.length() for group in groups),
        outputs=sum(len(ids) for group in groups for ids in group.completions),
    )


def rows_work(pairs: Iterable[Preference], compute: ComputeConfig) -> dict[str, int]:
    """The passes of `compute_rows`, as metrics (see `work`)."""
    return frozen_work("reference", problem_groups(distinct(pairs), compute.row_tokens))


def distinct(pairs: Iterable[Preference]) -> dict[str, tuple[list[int], list[list[int]]]]:
    """Of each problem: its prompt's token ids and its distinct completions, in order."""
    found: dict[str, tuple[list[int], list[list[int]]]] = {}
    for pair in pairs:
        _, completions = found.setdefault(pair.id, (pair.prompt_ids, []))
        for ids in (pair.chosen_ids, pair.rejected_ids):
            if ids not in completions:
                completions.append(ids)
    return found


def problem_groups(
    problems: Mapping[str, tuple[list[int], list[list[int]]]], row_tokens: int
) -> list[Group]:
    """The completions of each problem (`distinct`), numbered in turn, in groups that fit a row."""
    groups: list[Group] = []
    start = 0
    for prompt_ids, completions in problems.values():
        numbers = range(start, start + len(completions))
        group = Group(prompt_ids=prompt_ids, completions=completions, indices=numbers)
        groups += split_group(group, row_tokens)
        start += len(completions)
    return groups


def compute_rows(
    model: PreTrainedModel, pairs: Iterable[Preference], compute: ComputeConfig, pad_id: int
) -> list[RefLogprob]:
    """One row for each distinct completion of the pairs."""
    problems = distinct(pairs)
    names = [(name, ids) for name, (_, completions) in problems.items() for ids in completions]
    groups = problem_groups(problems, compute.row_tokens)
    sums = frozen_sums(model, groups, compute, pad_id).tolist()
    return [
        RefLogprob(id=name, completion_ids=ids, logprob_sum=value)
        for (name, ids), value in zip(names, sums, strict=True)
    ]
