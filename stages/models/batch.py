"""Padded batches in which the completions of one prompt share one copy of it.

A group is a prompt and then its completions, one after the other; each completion attends to the
prompt and to itself, with positions that continue the prompt's. The result is that of separate
rows, up to rounding, and the prompt is computed once: eight completions that are half as long as
their prompt cost 5/12 of eight rows. A row holds one group or, packed, several side by side.
Positions start at 0 in each group, and no group attends to another (Krell et al., "Efficient
sequence packing without cross-contamination" (2021)).

A completion may have tokens that are read but do not count (`Group.insertions`): they are in the
input, with positions like any other, but in no grid [completion, token].

If several ranks train one model (`models/sharding`), the rows of a batch are divided among them,
and every rank has the token ids of all completions.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.utils.rnn import pad_sequence

from stages import meter
from stages.algorithms.packing import first_fit_decreasing, token_budget_batches
from stages.models import sharding
from stages.models.attention import make_shared_mask
from stages.models.device import ComputeConfig

Insertions = Sequence[tuple[int, Sequence[int]]]
"""Tokens of a completion that are read but do not count, such as an environment's between turns:
pairs (number of counted tokens before them, their ids), in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Prompt with completions that stay in one micro-batch."""

    prompt_ids: Sequence[int]
    completions: Sequence[Sequence[int]]
    """Token ids that count in losses, log-probs and values."""
    indices: Sequence[int]
    """The caller's number of each completion, for `Batch.indices`."""
    insertions: Sequence[Insertions] = ()
    """The tokens of each completion that do not count; empty: no completion has any."""

    def length(self) -> int:
        """Number of tokens, the prompt counted once."""
        return len(self.prompt_ids) + sum(self.completion_lengths())

    def completion_lengths(self) -> list[int]:
        """Number of tokens of each completion, with those that do not count."""
        inserted = self.insertions or [()] * len(self.completions)
        return [
            len(ids) + sum(len(inserted_ids) for _, inserted_ids in places)
            for ids, places in zip(self.completions, inserted, strict=True)
        ]

    def whole_completions(self) -> list[tuple[list[int], list[int]]]:
        """All tokens of each completion, and the positions among them of those that count."""
        result = list[tuple[list[int], list[int]]]()
        inserted = self.insertions or [()] * len(self.completions)
        for token_ids, insertions in zip(self.completions, inserted, strict=True):
            whole, places, start = list[int](), list[int](), 0
            for end, inserted_ids in (*insertions, (len(token_ids), ())):
                places += range(len(whole), len(whole) + end - start)
                whole += [*token_ids[start:end], *inserted_ids]
                start = end
            result.append((whole, places))
        return result


def freeze_insertions(insertions: Sequence[Sequence[Any]] | None) -> Insertions:
    """Insertions from the lists in a row of a file; None: no insertions."""
    return tuple((place, tuple(ids)) for place, ids in insertions or ())


Row = Sequence[Group]
"""Groups side by side in one row of the input."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Micro-batch of completions. Axes: `batch` completions, `row` rows of this rank's input.

    Rows, positions and `counted` tokens are this rank's; completions are those of all ranks.
    """

    indices: list[int]
    """`Group.indices` of the completions."""
    lengths: list[int]
    """Number of tokens of each completion that count."""
    local: slice
    """The completions in this rank's rows; all in a single process."""
    input_ids: Int[Tensor, "row seq"]
    position_ids: Int[Tensor, "row seq"] | None
    """None: 0, 1, 2, ... in every row."""
    attention_mask: (
        Bool[Tensor, "row 1 seq seq"] | Int[Tensor, "1 1 longest start"] | BlockMask | None
    )
    """From `attention.make_shared_mask`. None: causal; padding is on the right, where no token
    attends to it."""
    predict_index: Int[Tensor, " counted"]
    """Position before each completion token that counts, in the flattened input."""
    last_index: Int[Tensor, " local"]
    """Position of the last token of each local completion, in the flattened input."""
    token_ids: Int[Tensor, "batch token"]
    """The tokens that count, without `Group.insertions`."""
    mask: Bool[Tensor, "batch token"]
    """True at the tokens of each completion, False at padding."""
    num_tokens: int
    """Positions of all ranks' inputs that are not padding."""
    num_padded: int
    """Positions of all ranks' inputs."""

    def counted_ids(self) -> Int[Tensor, " counted"]:
        """Completion tokens that this rank's input predicts."""
        return self.token_ids[self.local][self.mask[self.local]]


def split_group(group: Group, row_tokens: int) -> list[Group]:
    """Parts of a group, of at most `row_tokens` tokens but at least one completion each."""
    parts: list[list[int]] = []
    length = 0
    for i, num_tokens in enumerate(group.completion_lengths()):
        if parts and length + num_tokens <= row_tokens:
            parts[-1].append(i)
            length += num_tokens
        else:
            parts.append([i])
            length = len(group.prompt_ids) + num_tokens
    return [
        Group(
            prompt_ids=group.prompt_ids,
            completions=[group.completions[i] for i in part],
            indices=[group.indices[i] for i in part],
            insertions=[group.insertions[i] for i in part] if group.insertions else (),
        )
        for part in parts
    ]


def make_groups(
    problems: Iterable[tuple[Sequence[int], Sequence[Sequence[int]]]], row_tokens: int
) -> list[Group]:
    """Completions of each prompt, numbered in reading order, in groups that fit a row."""
    groups: list[Group] = []
    start = 0
    for prompt_ids, completions in problems:
        indices = range(start, start + len(completions))
        group = Group(prompt_ids=prompt_ids, completions=completions, indices=indices)
        groups += split_group(group, row_tokens)
        start = indices.stop
    return groups


@runtime_checkable
class BatchModel(Protocol):
    """Model that reads `Batch`es: a `Policy`, `ScalarHead` or `ProcessHead`."""

    compute: ComputeConfig
    pad_id: int
    """Token that fills the right of shorter rows."""

    @property
    def device(self) -> torch.device:
        """Device of its weights."""
        ...


def model_batches(model: BatchModel, groups: Sequence[Group]) -> Iterator[Batch]:
    """`micro_batches` with the limits, the padding and the device of `model`."""
    for batch in micro_batches(groups, model.compute, model.pad_id, model.device):
        yield batch
        meter.COUNTS["tokens"] += batch.num_tokens


def micro_batches(
    groups: Sequence[Group], compute: ComputeConfig, pad_id: int, device: torch.device
) -> Iterator[Batch]:
    """Batches of at most `compute.max_tokens` padded tokens, but at least one group each.

    `max_tokens` bounds rows times longest row. Completions of a group share the prompt up to
    `row_tokens`; in a longer group each has its own copy. Groups share a row up to `pack_tokens`.
    `pad_id` fills the right of shorter rows. If N ranks train one model, each has an N-th of a
    batch's groups, with all of their rows, and `max_tokens` bounds the rows of one rank.
    """
    world_size = sharding.get_world_size()
    # Entries with the same number of rows go together, so that rows times longest row is known.
    by_num_rows: dict[int, list[list[Row]]] = {}
    for rows in _make_rows(groups, compute):
        by_num_rows.setdefault(len(rows), []).append(rows)
    for num_rows, entries in sorted(by_num_rows.items()):
        lengths = [num_rows * max(_row_length(row) for row in rows) for rows in entries]
        if world_size > 1:  # N inputs hold N times as many entries
            num_fitting = [max(1, compute.max_tokens // length) for length in lengths]
            lengths = [-(-compute.max_tokens // number) for number in num_fitting]
        for numbers in token_budget_batches(lengths, world_size * compute.max_tokens):
            rows_by_rank = [
                [row for i in numbers[rank::world_size] for row in entries[i]]
                for rank in range(world_size)
            ]
            yield make_batch(rows_by_rank, pad_id, device)


def row_parts(group: Group, row_tokens: int) -> list[Group]:
    """The group itself if it fits `row_tokens`, else a part for each completion."""
    return [group] if group.length() <= row_tokens else split_group(group, 0)


def _row_length(row: Row) -> int:
    """Number of tokens of a row without padding."""
    return sum(group.length() for group in row)


def _make_rows(groups: Sequence[Group], compute: ComputeConfig) -> Iterator[list[Row]]:
    """Lists of rows, each to stay in one batch; the rows of a group are in one list, in order.

    A group that does not fit a packed row has a row for each of its parts.
    """
    capacity = min(compute.pack_tokens, compute.max_tokens)
    parts = [row_parts(group, compute.row_tokens) for group in groups]
    small = [row for row in parts if _row_length(row) <= capacity]
    for numbers in first_fit_decreasing([_row_length(row) for row in small], capacity):
        yield [[part for i in numbers for part in small[i]]]
    for row in parts:
        if _row_length(row) > capacity:
            yield [[part] for part in row]


def make_batch(rows_by_rank: Sequence[Sequence[Row]], pad_id: int, device: torch.device) -> Batch:
    """Tensors of a batch with these rows: all ranks' completions, the input of this rank's rows.

    A row is a sequence of groups; a group is its prompt and then its completions.
    """
    groups_by_rank = [[group for row in part for group in row] for part in rows_by_rank]
    rank = sharding.get_rank() if len(rows_by_rank) > 1 else 0
    groups, rows = [group for part in groups_by_rank for group in part], rows_by_rank[rank]
    assert all(group.prompt_ids and all(group.completions) for group in groups), "an empty row"
    plain = all(len(row) == 1 and len(row[0].completions) == 1 for row in rows)
    # A rank without a row reads a token of padding, since all ranks take part in a forward pass.
    width = max((_row_length(row) for row in rows), default=1)
    input_ids = torch.full((max(1, len(rows)), width), pad_id)
    position_ids = torch.zeros_like(input_ids)
    # Numbers of each token's segment, a prompt or a completion, and of its prompt's. Padding is
    # another segment, which attends to itself, so no row of the softmax is empty.
    segments, prompts = torch.full_like(input_ids, -1), torch.full_like(input_ids, -1)
    predict_index: list[int] = []
    last_index: list[int] = []
    for r, row in enumerate(rows):
        start = segment = 0
        for group in row:
            prompt, prompt_end = segment, start + len(group.prompt_ids)
            prompts[r, start : start + group.length()] = prompt
            for ids, places in ((group.prompt_ids, ()), *group.whole_completions()):
                end, position = start + len(ids), 0
                if segment > prompt:
                    position = len(group.prompt_ids)
                    before = [prompt_end - 1, *range(start, end - 1)]
                    predict_index.extend(r * width + before[place] for place in places)
                    last_index.append(r * width + end - 1)
                input_ids[r, start:end] = torch.tensor(list(ids))
                position_ids[r, start:end] = torch.arange(position, position + len(ids))
                segments[r, start:end] = segment
                start, segment = end, segment + 1
    completions = [torch.tensor(list(ids)) for group in groups for ids in group.completions]
    masks = [torch.ones(len(ids), dtype=torch.bool) for ids in completions]
    first = sum(len(group.completions) for part in groups_by_rank[:rank] for group in part)
    return Batch(
        indices=[index for group in groups for index in group.indices],
        lengths=[len(ids) for ids in completions],
        local=slice(first, first + len(last_index)),
        input_ids=input_ids.to(device),
        position_ids=None if plain else position_ids.to(device),
        attention_mask=None if plain else make_shared_mask(segments, prompts, device),
        predict_index=torch.tensor(predict_index, dtype=torch.long, device=device),
        last_index=torch.tensor(last_index, dtype=torch.long, device=device),
        token_ids=pad_sequence(completions, batch_first=True, padding_value=pad_id).to(device),
        mask=pad_sequence(masks, batch_first=True).to(device),
        num_tokens=sum(group.length() for group in groups),
        num_padded=sum(len(part) * max(map(_row_length, part), default=0) for part in rows_by_rank),
    )


@contextmanager
def eval_no_grad(model: nn.Module) -> Iterator[None]:
    """Context in which the model is in eval mode, without gradients; its modes are restored."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, was_training in modes:
            module.training = was_training


def pad_left(
    prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device
) -> dict[str, Int[Tensor, "prompt seq"]]:
    """Model inputs for prompts padded on the left, as generation needs them."""
    rows = [torch.tensor(list(prompt)) for prompt in prompts]
    pad = partial(pad_sequence, batch_first=True, padding_side="left")
    attention = pad([torch.ones_like(row) for row in rows])
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    input_ids = pad(rows, padding_value=pad_id)
    inputs = {"input_ids": input_ids, "attention_mask": attention, "position_ids": positions}
    return {name: tensor.to(device) for name, tensor in inputs.items()}
