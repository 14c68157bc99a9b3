from dataclasses import replace

import pytest
import torch
from largest_tensor import LargestTensor
from tiny_checkpoints import FAMILIES, load
from transformers import AutoModelForCausalLM, FalconConfig

from stages.models import attention, forward_check
from stages.models.batch import Batch, Group, make_batch

HEADS, GROUPS, SEQ, DIM = 6, 2, 300, 8


def drawn(new: int, seed: int = 0):
    stream = torch.Generator().manual_seed(seed)
    query = torch.randn(3, HEADS, new, DIM, generator=stream)
    key, value = torch.randn(2, 3, GROUPS, SEQ, DIM, generator=stream)
    return query, key, value


def plainly(query, key, value, mask):
    """softmax(q k / sqrt(dim)) v, each head with a copy of its group's keys and values."""
    key, value = (item.repeat_interleave(HEADS // GROUPS, dim=1) for item in (key, value))
    scores = query @ key.transpose(2, 3) / DIM**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) @ value).transpose(1, 2)


class Module(torch.nn.Module):
    num_key_value_groups = HEADS // GROUPS
    is_causal = True


@pytest.mark.parametrize("masked", [False, True])
def test_one_new_token_sees_what_it_would_see_with_a_copy_for_each_head(masked):
    query, key, value = drawn(1)
    mask = None
    if masked:  # rows of other lengths, padded on the left
        mask = (torch.arange(SEQ)[None] >= torch.tensor([[0], [7], [299]]))[:, None, None]
    result, weights = attention.attend(Module(), query, key, value, mask)
    assert weights is None
    torch.testing.assert_close(result, plainly(query, key, value, mask))


def test_several_new_tokens_are_read_as_ever():
    query, key, value = drawn(4)
    mask = (torch.arange(SEQ) <= torch.tensor([[9], [50], [51], [299]]))[None, None]
    result, _ = attention.attend(Module(), query, key, value, mask)
    torch.testing.assert_close(result, plainly(query, key, value, mask))


def test_no_tensor_as_large_as_the_keys_of_all_heads_is_made():
    query, key, value = drawn(1)
    mask = torch.ones(3, 1, 1, SEQ, dtype=torch.bool)
    result = {}
    for name, attend in {
        "ours": attention.attend,
        "theirs": attention.sdpa_attention_forward,
    }.items():
        with LargestTensor() as largest:
            attend(Module(), query, key, value, mask)
        result[name] = largest.elements
    copied = key.numel() * HEADS // GROUPS
    assert result["ours"] < copied <= result["theirs"]


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_used_where_the_architecture_lets_one_choose(family):
    model = load(family)
    attention.use_attention(model)
    assert model.config._attn_implementation == attention.NAME


def test_an_architecture_with_attention_of_its_own_keeps_it():
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 32}
    config = FalconConfig(**sizes, num_kv_heads=2, new_decoder_architecture=True)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    attention.use_attention(model)
    assert model.config._attn_implementation == "sdpa"


ROWS = [
    [
        Group(prompt_ids=[1, 2, 3], completions=[[5, 6, 7], [8, 9]], indices=[0, 1]),
        Group(prompt_ids=[4], completions=[[5], [6, 7, 8, 9]], indices=[2, 3]),
    ],
    [Group(prompt_ids=[7, 6, 5, 4], completions=[[3, 2]], indices=[4])],
]


def with_blocks(batch: Batch, rows: list[list[Group]]) -> Batch:
    """The batch as a GPU gets it."""
    segments, prompts = torch.full_like(batch.input_ids, -1), torch.full_like(batch.input_ids, -1)
    for r, row in enumerate(rows):
        start = segment = 0
        for group in row:
            prompts[r, start : start + group.length()] = segment
            for ids in (group.prompt_ids, *group.completions):
                segments[r, start : start + len(ids)] = segment
                start, segment = start + len(ids), segment + 1
    return replace(batch, attention_mask=attention.make_block_mask(segments, prompts))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("family", FAMILIES)
def test_dense_and_block_masks_read_shared_rows_as_rows_of_their_own(family):
    model = load(family).eval()
    attention.use_attention(model)
    alone = [
        Group(prompt_ids=group.prompt_ids, completions=[ids], indices=[0])
        for row in ROWS
        for group in row
        for ids in group.completions
    ]
    with torch.no_grad():
        expected = torch.cat(
            [
                forward_check.compute_hidden_states(model, batch)[batch.predict_index]
                for batch in (make_batch([[item]], 0, model.device) for item in alone)
            ]
        )
        dense = make_batch(ROWS, 0, model.device)
        for batch in (dense, with_blocks(dense, ROWS)):
            actual = forward_check.compute_hidden_states(model, batch)[batch.predict_index]
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_a_gpu_gets_blocks_where_rows_are_long_and_a_cpu_never():
    numbers = torch.zeros(1, attention.FLEX_MIN_LENGTH, dtype=torch.long)
    assert torch.is_tensor(attention.make_shared_mask(numbers, numbers, torch.device("cpu")))
    mask = attention.make_block_mask(numbers, numbers)
    assert mask.shape == (1, 1, attention.FLEX_MIN_LENGTH, attention.FLEX_MIN_LENGTH)
    assert mask.sparsity() > 40  # nothing above the diagonal
