"""What holds of every way to lay completions out; what each computes: test_heads."""

import itertools

import pytest
import torch
from tiny_checkpoints import CPU, PAD, compute

from stages.models.batch import Group, eval_no_grad, micro_batches, row_parts, split_group


def group(prompt_length, *lengths, first=0):
    """Prompt 10 11 ..., completions 20 20 .., 21 21 .., numbered from `first`."""
    return Group(
        prompt_ids=list(range(10, 10 + prompt_length)),
        completions=[[20 + i] * length for i, length in enumerate(lengths)],
        indices=list(range(first, first + len(lengths))),
    )


@pytest.mark.parametrize(
    ("row_tokens", "expected"),
    # Prompt 3: 3 + 2 + 2 = 7, a third would be 9; then 3 + 2 + 1 = 6; all are 3 + 7.
    [(0, [[0], [1], [2], [3]]), (7, [[0, 1], [2, 3]]), (10, [[0, 1, 2, 3]])],
)
def test_a_group_is_cut_where_a_row_is_full(row_tokens, expected):
    whole = group(3, 2, 2, 2, 1)
    assert [part.indices for part in split_group(whole, row_tokens)] == expected
    assert (row_parts(whole, row_tokens) == [whole]) == (row_tokens == 10)


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
            assert batch.num_padded == batch.input_ids.numel()
            assert batch.num_tokens == (batch.input_ids != PAD).sum()
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
