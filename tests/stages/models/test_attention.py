"""Attention against its definition, with dense and with block masks."""

from dataclasses import replace

import pytest
import torch
from largest_tensor import LargestTensor
from tiny_checkpoints import CPU, FAMILIES, load

from stages.models import attention
from stages.models.batch import Group, make_batch
from stages.models.policy import Policy

HEADS, GROUPS, SEQ, DIM = 6, 2, 300, 8


class Module(torch.nn.Module):
    num_key_value_groups = HEADS // GROUPS
    is_causal = True


def draw(new: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    stream = torch.Generator().manual_seed(0)
    query = torch.randn(3, HEADS, new, DIM, generator=stream)
    key, value = torch.randn(2, 3, GROUPS, SEQ, DIM, generator=stream)
    return query, key, value


def attend_plainly(query, key, value, mask, scale):
    """softmax(scale q k) v, each head with a copy of its group's keys and values."""
    key, value = (item.repeat_interleave(HEADS // GROUPS, dim=1) for item in (key, value))
    scores = query @ key.transpose(2, 3) * (DIM**-0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) @ value).transpose(1, 2)


MASKS = {
    "one token": (1, None),
    # rows of other lengths, padded on the left
    "one token of padded rows": (
        1, (torch.arange(SEQ)[None] >= torch.tensor([[0], [7], [299]]))[:, None, None]
    ),
    "four tokens": (
        4, (torch.arange(SEQ) <= torch.tensor([[9], [50], [51], [299]]))[None, None]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("scale", [None, 0.9])
def test_heads_of_a_group_attend_as_with_a_copy_each(name, scale):
    new, mask = MASKS[name]
    tensors = draw(new)
    result, weights = attention.attend(Module(), *tensors, mask, scaling=scale)
    assert weights is None
    torch.testing.assert_close(result, attend_plainly(*tensors, mask, scale))


SEGMENTS = torch.tensor([[0] * 40 + [1] * 60 + [2] * 50 + [3] * 70 + [4] * 60 + [-1] * 20])
PROMPTS = torch.tensor([[0] * 150 + [3] * 130 + [-1] * 20])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_dense_and_block_masks_are_the_definition():
    segments, prompts = SEGMENTS[0].tolist(), PROMPTS[0].tolist()
    mask = torch.tensor([
        [key <= query and segments[key] in (segments[query], prompts[query]) for key in range(SEQ)]
        for query in range(SEQ)
    ])  # fmt: skip
    dense = attention.make_shared_mask(SEGMENTS, PROMPTS, torch.device("cpu"))
    assert torch.equal(dense[0, 0], mask)
    tensors = draw(SEQ)
    blocks = attention.make_block_mask(SEGMENTS.expand(3, -1), PROMPTS.expand(3, -1))
    for scale in (None, 0.9):
        expected = attend_plainly(*tensors, mask, scale)
        for seen in (dense, blocks):
            result, _ = attention.attend(Module(), *tensors, seen, scaling=scale)
            torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


PACKED = torch.tensor([[0] * 30 + [1] * 50 + [2] * 20 + [3] * 150 + [-1] * 50,
                       [0] * 1 + [1] * 299, [0] * 200 + [1] * 40 + [2] * 59 + [3]])  # fmt: skip
PACKED_PROMPTS = torch.where(PACKED < 0, PACKED, PACKED // 2 * 2)


@pytest.mark.parametrize("scale", [None, 0.9])
def test_packed_sequences_by_their_starts_are_the_dense_mask(scale):
    starts = attention.make_starts(PACKED_PROMPTS)
    assert starts.shape == (1, 1, 299 + 1, 7)
    assert starts[0, 0, 0].tolist() == [0, 80, 250, 300, 600, 840, 900]
    dense = attention.make_shared_mask(PACKED, PACKED_PROMPTS, torch.device("cpu"))
    results = []
    for mask in (dense, starts):
        tensors = [states.requires_grad_() for states in draw(SEQ)]
        output, _ = attention.attend(Module(), *tensors, mask, scaling=scale)
        output.square().sum().backward()
        results.append([output, *(states.grad for states in tensors)])
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("size", "is_fit"), [(16, True), (12, False), (264, False)])
def test_heads_that_flash_attention_refuses_are_computed_without_it(size, is_fit, monkeypatch):
    calls = []

    def record(queries, *_, **__):
        calls.append(queries.shape)
        return queries

    monkeypatch.setattr(attention, "_has_flash_attention", lambda _: True)
    monkeypatch.setattr(attention, "varlen_attn", record)
    starts = attention.make_starts(PACKED_PROMPTS)
    tensors = [states[..., :1].expand(*states.shape[:3], size) for states in draw(SEQ)]
    attention.attend(Module(), *tensors, starts)
    assert bool(calls) is is_fit


def test_rows_are_packed_where_no_prompt_has_a_second_completion():
    assert attention.is_packed(PACKED, PACKED_PROMPTS)
    assert not attention.is_packed(SEGMENTS, PROMPTS)


def test_a_model_reads_starts_as_it_reads_the_dense_mask():
    rows = [[Group(prompt_ids=[5, 6], completions=[[7, 8, 9]], indices=[0]),
             Group(prompt_ids=[10], completions=[[11, 1]], indices=[1])]]  # fmt: skip
    dense = make_batch(rows, 0, CPU)
    starts = attention.make_starts(torch.tensor([[0, 0, 0, 0, 0, 2, 2, 2]]))
    for family in FAMILIES:
        model = Policy(load(family))
        expected, actual = (
            model(replace(dense, attention_mask=mask), temperature=1.0).logprobs
            for mask in (dense.attention_mask, starts)
        )
        torch.testing.assert_close(actual, expected)


def test_blocks_leave_out_what_is_not_attended_to_and_a_cpu_has_a_dense_mask():
    numbers = torch.zeros(1, attention.FLEX_MIN_LENGTH, dtype=torch.long)
    assert torch.is_tensor(attention.make_shared_mask(numbers, numbers, torch.device("cpu")))
    assert attention.make_block_mask(numbers, numbers).sparsity() > 40


def test_attention_allocates_no_tensor_as_large_as_the_keys_of_all_heads():
    query, key, value = draw(1)
    mask = torch.ones(3, 1, 1, SEQ, dtype=torch.bool)
    sizes = []
    for attend in (attention.attend, attention.sdpa_attention_forward):
        with LargestTensor() as largest:
            attend(Module(), query, key, value, mask)
        sizes.append(largest.elements)
    assert sizes[0] < key.numel() * HEADS // GROUPS <= sizes[1]
