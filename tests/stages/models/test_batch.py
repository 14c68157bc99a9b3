"""Rows of micro-batches by hand, and what holds of every way to lay completions out."""

import itertools
from dataclasses import replace
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
    pad_left,
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
    assert batch.counted_ids().tolist() == [i for ids in row["token_ids"] for i in ids if i]
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


def test_padding_of_a_shared_row_sees_itself_and_no_token_sees_it():
    groups = [group(2, 2, 1), group(2, 1, first=2)]
    (batch,) = micro_batches(groups, compute(row_tokens=5), PAD, CPU)
    (short,) = (row for row, ids in enumerate(batch.input_ids) if ids[-1] == PAD)
    mask = batch.attention_mask[short, 0]
    assert not mask[:3, 3:].any()
    assert mask.diagonal().all()


@pytest.mark.parametrize(
    ("row_tokens", "expected"),
    # Prompt 3: 3 + 2 + 2 = 7, a third would be 9; then 3 + 2 + 1 = 6.
    [(0, [[0], [1], [2], [3]]), (7, [[0, 1], [2, 3]]), (100, [[0, 1, 2, 3]])],
)
def test_a_group_is_cut_where_a_row_is_full_and_takes_its_insertions_along(row_tokens, expected):
    whole = group(3, 2, 2, 2, 1)
    assert [part.indices for part in split_group(whole, row_tokens)] == expected
    places = [[(1, [])], [(2, [])], [], [(0, [])]]
    parts = split_group(replace(whole, insertions=places), row_tokens)
    assert [part.insertions for part in parts] == [[places[i] for i in ids] for ids in expected]


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
            number = len({index // 10 for index in batch.indices})
            assert number == 1 or batch.num_padded <= max_tokens
            members = [batch.indices[i] for i in range(len(batch.indices))]
            assert members == [i for _, part in itertools.groupby(members, lambda i: i // 10)
                               for i in sorted(part)]  # fmt: skip
            assert batch.input_ids.shape[1] <= max(pack_tokens, row_tokens, 23)


@pytest.mark.parametrize("changes", [{"pack_tokens": 5}, {"pack_tokens": 64, "max_tokens": 5}])
def test_a_group_longer_than_a_packed_row_or_a_batch_is_not_packed(changes):
    groups = [group(2, 2), group(2, 4, first=1), group(2, 2, first=2)]
    batches = list(micro_batches(groups, compute(**changes), PAD, CPU))
    assert all(batch.attention_mask is None for batch in batches)


@pytest.mark.parametrize("empty", [group(0, 1), group(2, 1, 0)])
def test_an_empty_prompt_or_completion_is_refused(empty):
    with pytest.raises(AssertionError):
        list(micro_batches([empty], compute(), PAD, CPU))


def test_left_padded_prompts_by_hand():
    inputs = pad_left([[5, 6, 7], [8]], PAD, CPU)
    assert inputs["input_ids"].tolist() == [[5, 6, 7], [PAD, PAD, 8]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert inputs["position_ids"].tolist() == [[0, 1, 2], [0, 0, 0]]


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_restores_the_mode_of_each_module(training):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()).train(training)
    model[1].train(not training)
    with eval_no_grad(model):
        assert not any(module.training for module in model.modules())
        assert not model(torch.ones(1, 2)).requires_grad
    assert [model.training, model[0].training, model[1].training] == [
        training, training, not training
    ]  # fmt: skip
