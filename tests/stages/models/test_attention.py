"""Attention against its definition, with each kind of mask; with a model's heads: test_heads."""

import pytest
import torch
from largest_tensor import LargestTensor
from tiny_checkpoints import CPU

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
    return (scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value).transpose(1, 2)


SEGMENTS = torch.tensor([[0] * 40 + [1] * 60 + [2] * 50 + [3] * 70 + [4] * 60 + [-1] * 20])
PROMPTS = torch.tensor([[0] * 150 + [3] * 130 + [-1] * 20])
PACKED = torch.tensor([[0] * 30 + [1] * 50 + [2] * 20 + [3] * 150 + [-1] * 50,
                       [0] * 1 + [1] * 299, [0] * 200 + [1] * 40 + [2] * 59 + [3]])  # fmt: skip
PACKED_PROMPTS = torch.where(PACKED < 0, PACKED, PACKED // 2 * 2)
SCALES = pytest.mark.parametrize("scale", [None, 0.9])


@SCALES
def test_a_new_token_attends_to_padded_rows_without_a_copy_of_the_keys_for_each_head(scale):
    tensors = draw(1)
    padded = (torch.arange(SEQ)[None] >= torch.tensor([[0], [7], [299]]))[:, None, None]
    sizes = []
    for attend in (attention.attend, attention.sdpa_attention_forward):
        with LargestTensor() as largest:
            result, _ = attend(Module(), *tensors, padded, scaling=scale)
        sizes.append(largest.elements)
        torch.testing.assert_close(result, attend_plainly(*tensors, padded, scale))
    assert sizes[0] < tensors[1].numel() * HEADS // GROUPS <= sizes[1]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@SCALES
def test_dense_and_block_masks_and_starts_are_the_definition(scale):
    segments, prompts = SEGMENTS[0].tolist(), PROMPTS[0].tolist()
    mask = torch.tensor([
        [key <= query and segments[key] in (segments[query], prompts[query]) for key in range(SEQ)]
        for query in range(SEQ)
    ])  # fmt: skip
    dense = attention.make_shared_mask(SEGMENTS, PROMPTS, CPU)
    assert torch.equal(dense[0, 0], mask)
    packed = attention.make_shared_mask(PACKED, PACKED_PROMPTS, CPU)
    tensors = draw(SEQ)
    for seen, same in (
        (dense, mask),
        (attention.make_block_mask(SEGMENTS.expand(3, -1), PROMPTS.expand(3, -1)), mask),
        (attention.make_starts(PACKED_PROMPTS), packed),
    ):
        result, _ = attention.attend(Module(), *tensors, seen, scaling=scale)
        expected = attend_plainly(*tensors, same, scale)
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("size", "is_fit"), [(16, True), (12, False), (264, False)])
def test_heads_that_flash_attention_refuses_are_computed_without_it(size, is_fit, monkeypatch):
    calls = []

    def record(queries, *_, **__):
        calls.append(queries.shape)
        return queries

    monkeypatch.setattr(attention, "_has_flash_attention", lambda _: True)
    monkeypatch.setattr(attention, "varlen_attn", record)
    tensors = [states[..., :1].expand(*states.shape[:3], size) for states in draw(SEQ)]
    attention.attend(Module(), *tensors, attention.make_starts(PACKED_PROMPTS))
    assert bool(calls) is is_fit


def test_which_mask_a_batch_has():
    assert attention.is_packed(PACKED, PACKED_PROMPTS)
    assert not attention.is_packed(SEGMENTS, PROMPTS)
    numbers = torch.zeros(1, attention.FLEX_MIN_LENGTH, dtype=torch.long)
    assert torch.is_tensor(attention.make_shared_mask(numbers, numbers, CPU))
    assert attention.make_block_mask(numbers, numbers).sparsity() > 40
