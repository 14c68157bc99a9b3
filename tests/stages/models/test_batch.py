import dataclasses
import itertools

import pytest
import torch
from collated import collate
from tiny_checkpoints import CPU, PAD, compute

from stages.models.batch import Group, micro_batches, split_group


def group(prompt_length, *lengths, first=0):
    return Group(
        prompt_ids=list(range(10, 10 + prompt_length)),
        completions=[[20 + i] * length for i, length in enumerate(lengths)],
        indices=list(range(first, first + len(lengths))),
    )


def test_a_shared_row_by_hand():
    # Prompt 10 11, completions 20 20 and 21: one row of five positions.
    batch = collate([group(2, 2, 1)], 5, PAD, CPU)
    assert batch.input_ids.tolist() == [[10, 11, 20, 20, 21]]
    # Both completions continue the prompt's positions.
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 2]]
    # Each first token is predicted at the prompt's end (1), each later one at the token before.
    assert batch.predict_index.tolist() == [1, 2, 1]
    assert batch.last_index.tolist() == [3, 4]
    assert batch.token_ids.tolist() == [[20, 20], [21, PAD]]
    assert batch.mask.tolist() == [[True, True], [True, False]]
    sees = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 0, 1]]
    assert batch.attention_mask[0, 0].int().tolist() == sees


def test_tokens_that_do_not_count_are_read_and_never_predicted_by_hand():
    # Prompt 10 11, completions 20 (7 8) 20 and 21 (9) 21 21, what is in brackets inserted.
    parts = group(2, 2, 3)
    parts = dataclasses.replace(parts, insertions=[[(1, [7, 8])], [(1, [9])]])
    assert parts.length() == 2 + 4 + 4
    batch = collate([parts], 10, PAD, CPU)
    assert batch.input_ids.tolist() == [[10, 11, 20, 7, 8, 20, 21, 9, 21, 21]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4, 5, 2, 3, 4, 5]]
    # 20 at the prompt's end, the second 20 at the 8 before it; 21 likewise.
    assert batch.predict_index.tolist() == [1, 4, 1, 7, 8]
    assert batch.last_index.tolist() == [5, 9]
    assert batch.lengths == [2, 3]
    assert batch.token_ids.tolist() == [[20, 20, PAD], [21, 21, 21]]
    assert batch.mask.tolist() == [[True, True, False], [True, True, True]]
    assert batch.num_tokens == 10
    # All of a completion attends to the prompt and to itself.
    blocks = torch.zeros(10, 10, dtype=torch.bool)
    blocks[:, :2] = blocks[2:6, 2:6] = blocks[6:, 6:] = True
    assert torch.equal(batch.attention_mask[0, 0], blocks.tril())
    # A row of 9 has no room for both.
    cut = collate([parts], 9, PAD, CPU)
    assert cut.input_ids.tolist() == [[10, 11, 20, 7, 8, 20], [10, 11, 21, 9, 21, 21]]
    assert cut.predict_index.tolist() == [1, 4, 7, 9, 10]
    halves = split_group(parts, 9)
    assert [half.insertions for half in halves] == [[[(1, [7, 8])]], [[(1, [9])]]]


def test_completions_without_insertions_are_as_they_were():
    plain = group(3, 2, 1)
    empty = dataclasses.replace(plain, insertions=[(), ()])
    batch, other = (collate([part], 64, PAD, CPU) for part in (plain, empty))
    for name, value in vars_of(batch).items():
        same = vars_of(other)[name]
        assert torch.equal(value, same) if isinstance(value, torch.Tensor) else value == same


def vars_of(batch):
    return {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}


def test_a_longer_group_than_a_row_gets_a_row_for_each_completion_and_plain_causal_attention():
    batch = collate([group(2, 2, 1)], 4, PAD, CPU)
    assert batch.input_ids.tolist() == [[10, 11, 20, 20], [10, 11, 21, PAD]]
    assert batch.position_ids is None
    assert batch.attention_mask is None
    assert batch.predict_index.tolist() == [1, 2, 4 + 1]
    assert batch.last_index.tolist() == [3, 4 + 2]


def test_padding_of_a_shared_row_sees_itself_and_no_real_token_sees_it():
    batch = collate([group(2, 2, 1), group(2, 1)], 5, PAD, CPU)
    mask = batch.attention_mask[1, 0]
    assert not mask[:3, 3:].any()
    assert mask.diagonal().all()


def test_a_packed_row_by_hand():
    # Prompt 10 11 with 20 20 and 21, then prompt 10 with 20; the longer group comes first.
    groups = [group(1, 1, first=2), group(2, 2, 1)]
    (batch,) = micro_batches(groups, compute(pack_tokens=7), PAD, CPU)
    assert batch.indices == [0, 1, 2]
    assert batch.input_ids.tolist() == [[10, 11, 20, 20, 21, 10, 20]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 2, 0, 1]]
    assert batch.predict_index.tolist() == [1, 2, 1, 5]
    assert batch.last_index.tolist() == [3, 4, 6]
    assert batch.token_ids.tolist() == [[20, 20], [21, PAD], [20, PAD]]
    assert batch.num_tokens == 7
    sees = [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1, 1],
    ]
    assert batch.attention_mask[0, 0].int().tolist() == sees


def test_completions_that_do_not_share_a_prompt_bring_their_own_into_a_packed_row():
    settings = compute(row_tokens=0, pack_tokens=7)
    (batch,) = micro_batches([group(2, 2, 1)], settings, PAD, CPU)
    assert batch.input_ids.tolist() == [[10, 11, 20, 20, 10, 11, 21]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2]]
    assert batch.predict_index.tolist() == [1, 2, 5]


@pytest.mark.parametrize("changes", [{"pack_tokens": 5}, {"pack_tokens": 64, "max_tokens": 5}])
def test_a_group_longer_than_a_packed_row_or_a_batch_is_not_packed(changes):
    groups = [group(2, 2), group(2, 4, first=1), group(2, 2, first=2)]
    batches = list(micro_batches(groups, compute(**changes), PAD, CPU))
    assert [batch.input_ids.shape for batch in batches] in ([(1, 6), (1, 4), (1, 4)], [(3, 6)])
    assert all(batch.attention_mask is None for batch in batches)


def test_padding_is_what_is_not_counted_as_a_token():
    for pack_tokens in (0, 9):
        groups = [group(2, 2, 1), group(2, 1, first=2), group(4, 4, first=3)]
        (batch,) = micro_batches(groups, compute(pack_tokens=pack_tokens), PAD, CPU)
        assert batch.num_tokens == (batch.input_ids != PAD).sum() == 5 + 3 + 8


def test_rows_keep_the_callers_numbers():
    batch = collate([group(2, 1, 1, first=4), group(3, 1, first=0)], 64, PAD, CPU)
    assert batch.indices == [4, 5, 0]


@pytest.mark.parametrize(
    ("row_tokens", "expected"),
    [
        (0, [[0], [1], [2], [3]]),
        # Prompt 3: 3 + 2 + 2 = 7, a third would be 9; then 3 + 2 + 1 = 6.
        (7, [[0, 1], [2, 3]]),
        (100, [[0, 1, 2, 3]]),
    ],
)
def test_a_group_is_cut_where_a_row_is_full(row_tokens, expected):
    parts = split_group(group(3, 2, 2, 2, 1), row_tokens)
    assert [part.indices for part in parts] == expected
    assert all(part.length() <= max(row_tokens, 5) for part in parts)


@pytest.mark.parametrize("pack_tokens", [0, 25, 1000])
@pytest.mark.parametrize("row_tokens", [0, 12, 30, 1000])
@pytest.mark.parametrize("max_tokens", [1, 60, 200, 10_000])
def test_a_batch_of_several_groups_is_within_the_budget_and_no_completion_is_lost(
    max_tokens, row_tokens, pack_tokens
):
    generator = torch.Generator().manual_seed(0)
    groups = [
        group(*torch.randint(1, 12, (int(n) + 1,), generator=generator).tolist(), first=10 * i)
        for i, n in enumerate(torch.randint(1, 5, (20,), generator=generator))
    ]
    settings = compute(max_tokens=max_tokens, row_tokens=row_tokens, pack_tokens=pack_tokens)
    batches = list(micro_batches(groups, settings, PAD, CPU))
    result = sorted(index for batch in batches for index in batch.indices)
    assert result == sorted(index for g in groups for index in g.indices)
    for batch in batches:
        num_groups = len({index // 10 for index in batch.indices})
        assert num_groups == 1 or batch.input_ids.numel() <= max_tokens


def test_completions_of_a_group_stay_in_one_batch_and_in_order():
    groups = [group(3, 2, 2, first=2 * i) for i in range(10)]
    for row_tokens, pack_tokens in itertools.product((0, 64), (0, 8, 20)):
        settings = compute(max_tokens=20, row_tokens=row_tokens, pack_tokens=pack_tokens)
        for batch in micro_batches(groups, settings, PAD, CPU):
            assert [i + 1 for i in batch.indices[::2]] == batch.indices[1::2]


@pytest.mark.parametrize("empty", [group(0, 1), group(2, 1, 0)])
def test_an_empty_prompt_or_completion_is_refused_not_misaligned(empty):
    with pytest.raises(AssertionError):
        collate([empty], 64, PAD, CPU)
