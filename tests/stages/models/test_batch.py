"""Rows of micro-batches by hand, and what holds of every way to lay completions out."""

import itertools
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML
from tiny_checkpoints import CPU, PAD, compute

from stages.models.batch import (
    Group,
    eval_no_grad,
    freeze_insertions,
    micro_batches,
    split_group,
)


def group(prompt_length, *lengths, first=0, insertions=()):
    """Prompt 10 11 ..., completions 20 20 .., 21 21 .., numbered from `first`."""
    return Group(
        prompt_ids=list(range(10, 10 + prompt_length)),
        completions=[[20 + i] * length for i, length in enumerate(lengths)],
        indices=list(range(first, first + len(lengths))),
        insertions=insertions,
    )


TABLES = YAML(typ="safe").load(Path(__file__).with_name("batch.yaml"))
LAYOUTS = TABLES["layouts"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_batch_worked_by_hand(name):
    row, mask = LAYOUTS[name], LAYOUTS[name].get("mask")
    groups = [
        group(
            number,
            *lengths,
            first=sum(more[:1]),
            insertions=[freeze_insertions(places) for part in more[1:] for places in part],
        )
        for number, lengths, *more in row["groups"]
    ]
    (batch,) = micro_batches(groups, compute(**row["compute"]), PAD, CPU)
    assert batch.input_ids.tolist() == row["input_ids"]
    assert batch.predict_index.tolist() == row["predict"]
    assert batch.last_index.tolist() == row["last"]
    assert batch.token_ids.tolist() == row["token_ids"]
    assert batch.lengths == [sum(i != PAD for i in ids) for ids in row["token_ids"]]
    assert batch.mask.tolist() == [[i != PAD for i in ids] for ids in row["token_ids"]]
    assert batch.num_tokens == sum(i != PAD for ids in row["input_ids"] for i in ids)
    assert batch.num_padded == batch.input_ids.numel()
    assert batch.indices == row.get("indices", [*range(len(batch.indices))])
    if mask is None:
        assert (batch.position_ids, batch.attention_mask) == (None, None)
        return
    assert batch.position_ids.tolist() == row["positions"]
    seen = torch.eye(batch.input_ids.shape[1], dtype=torch.bool)
    for place, others in TABLES["masks"][mask].items():
        seen[place, others] = True
    assert torch.equal(batch.attention_mask[0, 0], seen)


@pytest.mark.parametrize(
    ("row_tokens", "expected"),
    # Prompt 3: 3 + 2 + 2 = 7, a third would be 9; then 3 + 2 + 1 = 6.
    [(0, [[0], [1], [2], [3]]), (7, [[0, 1], [2, 3]]), (100, [[0, 1, 2, 3]])],
)
def test_a_group_is_cut_where_a_row_is_full(row_tokens, expected):
    parts = split_group(group(3, 2, 2, 2, 1), row_tokens)
    assert [part.indices for part in parts] == expected


@pytest.mark.parametrize("max_tokens", [1, 60, 200, 10_000])
def test_every_layout_keeps_the_budget_every_completion_and_the_order_of_a_group(max_tokens):
    stream = torch.Generator().manual_seed(0)
    sizes = [torch.randint(1, 12, (int(n),), generator=stream).tolist()
             for n in torch.randint(2, 6, (20,), generator=stream)]  # fmt: skip
    groups = [group(*lengths, first=10 * i) for i, lengths in enumerate(sizes)]
    for row_tokens, pack_tokens in itertools.product((0, 12, 30, 1000), (0, 25, 1000)):
        settings = compute(max_tokens=max_tokens, row_tokens=row_tokens, pack_tokens=pack_tokens)
        batches = list(micro_batches(groups, settings, PAD, CPU))
        indices = [index for batch in batches for index in batch.indices]
        assert sorted(indices) == [index for item in groups for index in item.indices]
        for batch in batches:
            by_group = itertools.groupby(batch.indices, lambda index: index // 10)
            parts = [list(part) for _, part in by_group]
            assert parts == [sorted(part) for part in parts]
            assert len(parts) == 1 or batch.num_padded <= max_tokens
            assert batch.input_ids.shape[1] <= max(pack_tokens, row_tokens, 23)


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_restores_the_mode_of_each_module(training):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()).train(training)
    model[1].train(not training)
    modes = [module.training for module in model.modules()]
    with eval_no_grad(model):
        assert not any(module.training for module in model.modules())
        assert not model(torch.ones(1, 2)).requires_grad
    assert [module.training for module in model.modules()] == modes
