"""Padded batches in which the completions of one prompt share one copy of it.

A group is a prompt and then its completions, one after the other; each completion attends to the
prompt and to itself, with positions that continue the prompt's. The result is that of separate
rows, up to rounding, and the prompt is computed once: eight completions shorter than their prompt
cost a third of eight rows. A row holds one group or, packed, several side by side. Positions start
at 0 in each, and none attends to another (Krell et al., "Efficient sequence packing without
cross-contamination" (2021)).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from stages.algorithms.packing import first_fit_decreasing, token_budget_batches
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


Row = Sequence[Group]
"""Groups side by side in one row of the input."""


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
    num_tokens: int
    """Positions of the input that are not padding."""


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

    None is empty. `max_tokens` bounds rows times longest row; completions of a group share a prompt
    up to `row_tokens`, and in a longer group each has its own; groups share a row up to
    `pack_tokens`. `pad_id` fills the right of shorter rows.
    """
    # Equally many rows together: rows times longest row is then known beforehand.
    by_num_rows: dict[int, list[list[Row]]] = {}
    for rows in _place(groups, compute):
        by_num_rows.setdefault(len(rows), []).append(rows)
    for num_rows, alike in sorted(by_num_rows.items()):
        lengths = [num_rows * max(_length(row) for row in rows) for rows in alike]
        for chosen in token_budget_batches(lengths, compute.max_tokens):
            yield _fill([row for i in chosen for row in alike[i]], pad_id, device)


def collate(groups: Sequence[Group], row_tokens: int, pad_id: int, device: torch.device) -> Batch:
    """One batch of these groups, not packed; see `micro_batches`."""
    rows = [[part] for group in groups for part in _parts(group, row_tokens)]
    return _fill(rows, pad_id, device)


def _parts(group: Group, row_tokens: int) -> list[Group]:
    """One part where the group fits `row_tokens`, else one for each completion."""
    return [group] if group.length() <= row_tokens else split_group(group, 0)


def _length(row: Row) -> int:
    """Tokens of a row without padding."""
    return sum(group.length() for group in row)


def _place(groups: Sequence[Group], compute: ComputeConfig) -> Iterator[list[Row]]:
    """Lists of rows, each to stay in one batch; a group lies in one list, in order.

    A group that does not fit a packed row keeps a row for each of its parts.
    """
    capacity = min(compute.pack_tokens, compute.max_tokens)
    parts = [_parts(group, compute.row_tokens) for group in groups]
    small = [i for i, row in enumerate(parts) if _length(row) <= capacity]
    for chosen in first_fit_decreasing([_length(parts[i]) for i in small], capacity):
        yield [[part for place in chosen for part in parts[small[place]]]]
    for row in parts:
        if _length(row) > capacity:
            yield [[part] for part in row]


def _fill(rows: Sequence[Row], pad_id: int, device: torch.device) -> Batch:
    """The tensors of a batch with these rows."""
    width = max(_length(row) for row in rows)
    groups = [group for row in rows for group in row]
    assert all(group.prompt_ids and all(group.completions) for group in groups), "an empty row"
    plain = len(groups) == len(rows) and all(len(group.completions) == 1 for group in groups)
    completions = [ids for group in groups for ids in group.completions]
    longest = max(len(ids) for ids in completions)
    input_ids = torch.full((len(rows), width), pad_id)
    position_ids = torch.zeros((len(rows), width), dtype=torch.long)
    # Padding is a group of its own: it may see itself, so no row of the softmax is empty.
    group_ids = torch.full((len(rows), width), -1)
    segments = torch.full((len(rows), width), -1)
    token_ids = torch.full((len(completions), longest), pad_id)
    mask = torch.zeros((len(completions), longest), dtype=torch.bool)
    predict_index: list[int] = []
    last_index: list[int] = []
    for r, row in enumerate(rows):
        start = 0
        for place, group in enumerate(row):
            prompt_end = start + len(group.prompt_ids)
            group_ids[r, start : start + group.length()] = place
            # Segment 0 is the prompt, the others the completions.
            for segment, ids in enumerate([group.prompt_ids, *group.completions]):
                end = start + len(ids)
                input_ids[r, start:end] = torch.tensor(list(ids))
                position_ids[r, start:end] = torch.arange(len(ids))
                segments[r, start:end] = segment
                if segment:
                    position_ids[r, start:end] += len(group.prompt_ids)
                    predict_index.append(r * width + prompt_end - 1)
                    predict_index.extend(range(r * width + start, r * width + end - 1))
                    last_index.append(r * width + end - 1)
                start = end
    for number, ids in enumerate(completions):
        token_ids[number, : len(ids)] = torch.tensor(list(ids))
        mask[number, : len(ids)] = True
    return Batch(
        indices=[index for group in groups for index in group.indices],
        input_ids=input_ids.to(device),
        position_ids=None if plain else position_ids.to(device),
        attention_mask=None if plain else _group_mask(group_ids, segments).to(device),
        predict_index=torch.tensor(predict_index, device=device),
        last_index=torch.tensor(last_index, device=device),
        token_ids=token_ids.to(device),
        mask=mask.to(device),
        num_tokens=sum(_length(row) for row in rows),
    )


def left_padded(
    prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device
) -> dict[str, Int[Tensor, "prompt seq"]]:
    """What a model reads of prompts that all end in the last column, to be gone on with."""
    width = max(len(prompt) for prompt in prompts)
    input_ids = torch.full((len(prompts), width), pad_id)
    attention = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        input_ids[row, width - len(prompt) :] = torch.tensor(list(prompt))
        attention[row, width - len(prompt) :] = 1
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    inputs = {"input_ids": input_ids, "attention_mask": attention, "position_ids": positions}
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def _group_mask(
    group_ids: Int[Tensor, "row seq"], segments: Int[Tensor, "row seq"]
) -> Bool[Tensor, "row 1 seq seq"]:
    """True where a position (third axis) may attend to another (fourth).

    To those before it and itself, in its own segment and in the prompt of its group.
    """
    width = segments.shape[1]
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    same_group = group_ids[:, :, None] == group_ids[:, None, :]
    same_segment = segments[:, :, None] == segments[:, None, :]
    prompt = (segments == 0)[:, None, :]
    return (causal & same_group & (same_segment | prompt))[:, None]
