"""Attention against its definition, with dense and with block masks."""

import pytest
import torch
from largest_tensor import LargestTensor

from stages.models import attention

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
