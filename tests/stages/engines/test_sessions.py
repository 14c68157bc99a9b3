"""Sampling of several turns in a session, against sampling each from the whole text; the cache."""

import random

import pytest
import torch
from several_processes import in_processes
from tiny_checkpoints import BLOCKS, EOS, FAMILIES, PAD, exact, load, load_exact, random_ids
from transformers import AutoModelForCausalLM, MistralConfig

from stages.engines import loading
from stages.engines.growing_cache import GrowingLayer
from stages.engines.loading import DataParallelSampler
from stages.engines.prefix_cache import PrefixTable
from stages.engines.transformers import TransformersSampler
from stages.models import attention, row_policy
from stages.models.row_policy import LoraConfig
from stages.seeding import derive_seed

ENDS = frozenset([EOS, 2, 3, 4])
STREAM = torch.Generator().manual_seed(0)
STARTS = [random_ids(STREAM, length) for length in (3, 11, 1, 6)]
REPLIES = [random_ids(STREAM, length) for length in (1, 9, 2, 3, 0, 17, 4)]
"""What an environment says; after the empty one a cut turn goes on by itself."""
NEW_START = random_ids(STREAM, 8)
LENGTH, NUM_TURNS = 5, 4


def load_window():
    """A window and a padded row: columns of the cache are not tokens of the text."""
    config = MistralConfig(**BLOCKS | {"attention_dropout": 0.0}, sliding_window=4)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    attention.use_attention(model)
    return exact(model)


MODELS = {**{family: lambda name=family: load_exact(name) for family in FAMILIES},
          "window": load_window}  # fmt: skip


def make_engine(model, ends=ENDS, **sizes):
    return TransformersSampler(
        model=model, eos_ids=ends, pad_id=PAD, **{"max_batch": 64, "check_every": 1} | sizes
    )


def play(engine, texts, *, num_samples=3, length=LENGTH):
    """Samples of each turn. Episodes end at random, one begins anew in the third turn."""
    settings = {"temperature": 0.9, "max_new_tokens": length}
    draws, result = random.Random(0), []
    for turn in range(NUM_TURNS):
        seeds = [derive_seed(0, turn, i) for i in range(len(texts))]
        # Two samples of each prompt in the third turn, so that rows are continued twice.
        number = num_samples if turn == 0 else 1 + (turn == 2)
        groups = engine.sample(texts, seeds, num_samples=number, **settings)
        result.append([sample for group in groups for sample in group])
        texts = [
            [*text, *sample.token_ids, *REPLIES[draws.randrange(len(REPLIES))]]
            for text, group in zip(texts, groups, strict=True)
            for sample in group
            if draws.random() < 0.8
        ] + [NEW_START] * (turn == 1)
    return result


def assert_equal(actual, expected):
    for ours, theirs in zip(actual, expected, strict=True):
        assert [item.token_ids for item in ours] == [item.token_ids for item in theirs]
        for item, other in zip(ours, theirs, strict=True):
            assert item.logprobs == pytest.approx(other.logprobs, abs=1e-10)
            assert item.finish_reason == other.finish_reason


SIZES = [{}, {"max_batch": 5}, {"check_every": 3}, {"check_every": 3, "has_fixed_shapes": True}]


@pytest.mark.parametrize(("name", "sizes"), [
    (name, sizes) for name in MODELS for sizes in SIZES if (name, sizes) != ("window", SIZES[-1])
], ids=str)  # fmt: skip
def test_turns_of_a_session_are_those_sampled_from_the_whole_texts(name, sizes):
    engine = make_engine(MODELS[name](), **sizes)
    expected = play(engine, STARTS)
    with engine.session():
        actual = play(engine, STARTS)
    assert_equal(actual, expected)
    assert all({"stop", "length"} == {item.finish_reason for item in turn} for turn in actual[:2])


def read(sampler, texts, limits=2, *, num_samples=1, model=None):
    """Samples of texts, and how many tokens the model read for them, pass by pass."""
    counts = []
    hook = (model or sampler.model).register_forward_pre_hook(
        lambda _module, _args, inputs: counts.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    groups = sampler.sample(
        texts, range(len(texts)), num_samples=num_samples, temperature=1.0, max_new_tokens=limits
    )
    hook.remove()
    return groups, counts


def continue_texts(texts, groups, replies):
    rows = zip(texts, groups, replies, strict=True)
    return [[*text, *group[0].token_ids, *reply] for text, group, reply in rows]


def read_three_turns(engine):
    """Tokens read in each of three turns of 4 tokens, with a reply of 2 tokens between."""
    texts, numbers = [[5] * 20, [6] * 30], []
    for _ in range(3):
        groups, counts = read(engine, texts, 4)
        numbers.append(sum(counts))
        texts = continue_texts(texts, groups, [[8, 9]] * 2)
    return numbers


def test_a_session_reads_new_tokens_alone_and_leaves_nothing():
    engine = make_engine(load_exact("llama"), frozenset(), max_batch=8)
    # Prompts padded to the longest, then three tokens of each: the fourth is drawn, not read.
    whole = [60 + 6, 72 + 6, 84 + 6]
    assert read_three_turns(engine) == whole
    with engine.session():
        # The fourth token, the reply, and three tokens.
        assert read_three_turns(engine) == [60 + 6, 6 + 6, 6 + 6]
    with pytest.raises(ValueError, match="empty"), engine.session():
        read(engine, [[]])
    assert read_three_turns(engine) == whole
    with engine.session():
        groups, _ = read(engine, [[5] * 9, [6] * 9], num_samples=2)
        texts = [[5 + i] * 9 + sample.token_ids for i in (0, 1) for sample in groups[i]]
        # The token that was not read, and a new one, of each of four rows.
        assert read(engine, texts)[1] == [4, 4]
    alone = read(engine, STARTS[:1], 1)[0]
    with engine.session():
        read(engine, STARTS[:1], 1)
        again, counts = read(engine, STARTS[:1], 1)  # cached to its end, of which a token is read
    assert counts == [1]
    assert_equal(again, alone)


def test_at_most_max_batch_rows_of_the_last_call_stay():
    engine, texts = (
        make_engine(load("llama"), frozenset(), max_batch=2),
        [[5] * 9, [6] * 9, [7] * 9],
    )
    with engine.session():
        groups, _ = read(engine, texts)
        texts = continue_texts(texts, groups, [[8]] * 3)
        # Two of two new tokens and one of all twelve, each with one more token.
        assert read(engine, texts[::-1])[1] == [4, 2, 12, 1]
        read(engine, [[9]])
        # Not continued in the call before, so dropped.
        assert read(engine, texts[:1])[1] == [12, 1]


def test_a_row_stays_in_the_process_that_has_read_it():
    model, refreshes = load_exact("llama"), []
    engine = make_engine(model, frozenset(), max_batch=8)
    shared = DataParallelSampler(engine, refresh=lambda: refreshes.append(1))

    def play_three_turns():
        texts, limits, numbers, actual = [[5] * 20, [6] * 30, [7] * 8, [8]], [4, 2, 3, 4], [], []
        for _ in range(3):
            groups, counts = read(shared, texts, limits, model=model)
            numbers.append(sum(counts))
            actual += groups
            # The first ends, so that each other one has another number in the next turn.
            texts = continue_texts(texts, groups, [[9]] * len(texts))[1:]
            limits = limits[1:]
        return numbers, actual, len(refreshes)

    def compare():
        apart = play_three_turns()
        with shared.session():
            return apart, play_three_turns()

    (numbers, expected, before), (in_session, actual, after) = in_processes(2, compare)
    assert_equal(actual, expected)
    assert [len(group[0].token_ids) for group in actual] == [4, 2, 3, 4, 2, 3, 4, 3, 4]
    # Of the first rank. Row 2 alone goes on there: its last token, the reply and two tokens.
    assert in_session == [numbers[0], 2 + 2, 2 + 2]
    assert (before, after) == (3, 4)


def test_a_replica_has_the_merged_weights_of_the_policy():
    policy, replica = load("llama"), load("llama", 1)
    row_policy.add_adapters(policy, LoraConfig(rank=2, alpha=4), 0)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[3, 4, 5]])
    loading.copy_weights(policy, replica)
    torch.testing.assert_close(replica(ids).logits, policy(ids).logits, rtol=1e-4, atol=1e-4)


def test_the_longest_entry_that_a_text_begins_with():
    entries = {(1,): "a", (1, 2, 3): "b", (1, 2, 3, 0): "e", (1, 2, 3, 4, 9): "c", (5, 6): "d"}
    table = PrefixTable(entries)
    texts = [[1, 2, 3, 4, 5], [1, 2, 3], [1, 2], [1, 2, 3, 4, 9], [5, 7], [5, 6, 0], [0], []]
    assert [table.find(text) for text in texts] == ["b", "b", "a", "c", None, "d", None, None]
    assert PrefixTable({}).find([1]) is None


def test_a_cache_holds_what_was_written_of_the_selected_rows():
    stream = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 2, 3, 4, 4, generator=stream)
    layer, rows = GrowingLayer(10), torch.tensor([1, 0, 1])
    layer.update(keys, values)
    layer.select(rows)
    more = torch.randn(2, 3, 3, 2, 4, generator=stream)
    for result, old, new in zip(layer.update(*more), (keys, values), more, strict=True):
        assert torch.equal(result, torch.cat([old[rows], new], 2))


def test_a_cache_holds_what_attention_reads_in_mixed_precision():
    rotated, plain = torch.randn(1, 1, 2, 8), torch.randn(1, 1, 2, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        keys, values = GrowingLayer(4).update(rotated, plain)
    assert (keys.dtype, values.dtype) == (torch.bfloat16, torch.bfloat16)
    assert torch.equal(keys, rotated.bfloat16())
