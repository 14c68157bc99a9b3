"""Padded batches in which the completions of one prompt share one copy of it.

A row holds a prompt and then its completions, one after the other; each completion
attends to the prompt and to itself, with positions that continue the prompt's. The
result is that of separate rows, up to rounding, and the prompt is computed once:
eight completions shorter than their prompt cost a third of eight rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from stages.algorithms.batching import token_budget_batches
from stages.models.device import ComputeConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Completions of one prompt that stay in one micro-batch."""

    prompt_ids: Sequence[int]
    completions: Sequence[Sequence[int]]
    indices: Sequence[int]
    """The caller's number of each completion, given back in `Batch.indices`."""

    def length(self) -> int:
        """Tokens, the prompt counted once."""
        return len(self.prompt_ids) + sum(len(ids) for ids in self.completions)


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """A micro-batch of completions; `batch` counts completions, `row` rows of the input."""

    indices: list[int]
    input_ids: Int[Tensor, "row seq"]
    position_ids: Int[Tensor, "row seq"] | None
    """None: 0, 1, 2, ... in every row."""
    attention_mask: Bool[Tensor, "row 1 seq seq"] | None
    """None: causal. Padding is on the right, where no real token sees it."""
    predict_index: Int[Tensor, " counted"]
    """Of each completion token in turn, the position that predicts it, in the flattened input."""
    last_index: Int[Tensor, " batch"]
    """The position of each completion's last token, in the flattened input."""
    token_ids: Int[Tensor, "batch token"]
    mask: Bool[Tensor, "batch token"]
    """True at the real tokens of each completion."""


def split_group(group: Group, row_tokens: int) -> list[Group]:
    """The group cut into groups of at most `row_tokens` tokens, at least one completion each."""
    parts: list[list[int]] = []
    used = 0
    for place, ids in enumerate(group.completions):
        if parts and used + len(ids) <= row_tokens:
            parts[-1].append(place)
            used += len(ids)
        else:
            parts.append([place])
            used = len(group.prompt_ids) + len(ids)
    return [
        Group(
            prompt_ids=group.prompt_ids,
            completions=[group.completions[place] for place in part],
            indices=[group.indices[place] for place in part],
        )
        for part in parts
    ]


def micro_batches(
    groups: Sequence[Group], compute: ComputeConfig, pad_id: int, device: torch.device
) -> Iterator[Batch]:
    """The groups as batches of at most `compute.max_tokens` padded tokens (one group at least).

    Args:
        groups: completions with their prompts, none empty.
        compute: `max_tokens` bounds rows times longest row; completions of a group
            share a row up to `row_tokens`, and in a longer group each has its own.
        pad_id: fills the right of shorter rows.
        device: where the tensors go.
    """
    # Groups with equally many rows together: rows times longest row is then known beforehand.
    by_num_rows: dict[int, list[Group]] = {}
    for group in groups:
        by_num_rows.setdefault(len(_rows(group, compute.row_tokens)), []).append(group)
    for num_rows, alike in sorted(by_num_rows.items()):
        lengths = [
            num_rows * max(row.length() for row in _rows(group, compute.row_tokens))
            for group in alike
        ]
        for chosen in token_budget_batches(lengths, compute.max_tokens):
            yield collate([alike[i] for i in chosen], compute.row_tokens, pad_id, device)


def _rows(group: Group, row_tokens: int) -> list[Group]:
    """One row where the group fits `row_tokens`, else one for each completion."""
    return [group] if group.length() <= row_tokens else split_group(group, 0)


def collate(groups: Sequence[Group], row_tokens: int, pad_id: int, device: torch.device) -> Batch:
    """One batch of these groups; see `micro_batches`."""
    rows = [row for group in groups for row in _rows(group, row_tokens)]
    assert all(row.prompt_ids and all(row.completions) for row in rows), "an empty row"
    width = max(row.length() for row in rows)
    shared = any(len(row.completions) > 1 for row in rows)
    completions = [ids for row in rows for ids in row.completions]
    longest = max(len(ids) for ids in completions)
    input_ids = torch.full((len(rows), width), pad_id)
    position_ids = torch.zeros((len(rows), width), dtype=torch.long)
    # Padding is a segment of its own: it may see itself, so no row of the softmax is empty.
    segments = torch.full((len(rows), width), -1)
    token_ids = torch.full((len(completions), longest), pad_id)
    mask = torch.zeros((len(completions), longest), dtype=torch.bool)
    predict_index: list[int] = []
    last_index: list[int] = []
    number = 0
    for r, row in enumerate(rows):
        start = len(row.prompt_ids)
        input_ids[r, :start] = torch.tensor(list(row.prompt_ids))
        position_ids[r, :start] = torch.arange(start)
        segments[r, :start] = 0
        for segment, ids in enumerate(row.completions, start=1):
            end = start + len(ids)
            input_ids[r, start:end] = torch.tensor(list(ids))
            position_ids[r, start:end] = torch.arange(len(ids)) + len(row.prompt_ids)
            segments[r, start:end] = segment
            predict_index.append(r * width + len(row.prompt_ids) - 1)
            predict_index.extend(range(r * width + start, r * width + end - 1))
            last_index.append(r * width + end - 1)
            token_ids[number, : len(ids)] = torch.tensor(list(ids))
            mask[number, : len(ids)] = True
            start = end
            number += 1
    return Batch(
        indices=[index for row in rows for index in row.indices],
        input_ids=input_ids.to(device),
        position_ids=position_ids.to(device) if shared else None,
        attention_mask=_shared_prompt_mask(segments).to(device) if shared else None,
        predict_index=torch.tensor(predict_index, device=device),
        last_index=torch.tensor(last_index, device=device),
        token_ids=token_ids.to(device),
        mask=mask.to(device),
    )


def _shared_prompt_mask(segments: Int[Tensor, "row seq"]) -> Bool[Tensor, "row 1 seq seq"]:
    """True where a position (third axis) may attend to another (fourth)."""
    width = segments.shape[1]
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    same = segments[:, :, None] == segments[:, None, :]
    prompt = (segments == 0)[:, None, :] & (segments > 0)[:, :, None]
    return ((same | prompt) & causal)[:, None]
