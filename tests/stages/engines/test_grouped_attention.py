"""The heads of a group read its keys without a copy, and see what they saw before."""

import pytest
import torch
from largest_tensor import LargestTensor
from tiny_checkpoints import load
from transformers import AutoModelForCausalLM, FalconConfig, MistralConfig

from stages.engines import grouped_attention, transformers

HEADS, GROUPS, SEQ, DIM = 6, 2, 300, 8


def drawn(new: int, seed: int = 0):
    stream = torch.Generator().manual_seed(seed)
    query = torch.randn(3, HEADS, new, DIM, generator=stream)
    key, value = torch.randn(2, 3, GROUPS, SEQ, DIM, generator=stream)
    return query, key, value


def plainly(query, key, value, mask):
    """softmax(q k / sqrt(dim)) v, each head with a copy of its group's keys and values."""
    key, value = (one.repeat_interleave(HEADS // GROUPS, dim=1) for one in (key, value))
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
    found, weights = grouped_attention.attend(Module(), query, key, value, mask)
    assert weights is None
    torch.testing.assert_close(found, plainly(query, key, value, mask))


def test_several_new_tokens_are_read_as_ever():
    query, key, value = drawn(4)
    mask = (torch.arange(SEQ) <= torch.tensor([[9], [50], [51], [299]]))[None, None]
    found, _ = grouped_attention.attend(Module(), query, key, value, mask)
    torch.testing.assert_close(found, plainly(query, key, value, mask))


def test_no_tensor_as_large_as_the_keys_of_all_heads_is_made():
    query, key, value = drawn(1)
    mask = torch.ones(3, 1, 1, SEQ, dtype=torch.bool)
    found = {}
    for name, attend in {
        "ours": grouped_attention.attend,
        "theirs": grouped_attention.sdpa_attention_forward,
    }.items():
        with LargestTensor() as largest:
            attend(Module(), query, key, value, mask)
        found[name] = largest.elements
    copied = key.numel() * HEADS // GROUPS
    assert found["ours"] < copied <= found["theirs"]


@pytest.mark.parametrize(("family", "name"), [("llama", "sdpa_grouped"), ("gpt2", "sdpa")])
def test_it_is_used_where_heads_share_keys(family, name):
    model = load(family)
    grouped_attention.use(model)
    assert model.config._attn_implementation == name


def test_an_architecture_with_attention_of_its_own_keeps_it():
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 32}
    config = FalconConfig(**sizes, num_kv_heads=2, new_decoder_architecture=True)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    grouped_attention.use(model)
    assert model.config._attn_implementation == "sdpa"


def test_a_window_stays_a_window():
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"num_hidden_layers": 2, "intermediate_size": 16, "vocab_size": 32}
    config = MistralConfig(**sizes, sliding_window=3, initializer_range=0.5)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    ids = torch.arange(2, 14)[None]
    expected = model(ids).logits
    grouped_attention.use(model)
    cache = transformers.GrowingCache(2, 12)
    parts = [model(ids[:, :5], past_key_values=cache).logits]
    parts += [model(ids[:, t : t + 1], past_key_values=cache).logits for t in range(5, 12)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-4, atol=1e-5)
