"""Sampling of several turns in a session, against sampling each from the whole text."""

import random

import pytest
import torch
from several_processes import in_processes
from tiny_checkpoints import EOS, FAMILIES, PAD, load, load_exact, random_ids
from transformers import AutoModelForCausalLM, MistralConfig

from stages.engines.growing_cache import GrowingLayer
from stages.engines.loading import DataParallelSampler
from stages.engines.prefix_cache import PrefixTable
from stages.engines.transformers import TransformersSampler
from stages.models import attention
from stages.sampler import SessionSampler
from stages.seeding import derive_seed

ENDS = frozenset([EOS, 2, 3, 4])
GENERATOR = torch.Generator().manual_seed(0)
STARTS = [random_ids(GENERATOR, length) for length in (3, 11, 1, 6)]
REPLIES = [random_ids(GENERATOR, length) for length in (1, 9, 2, 3, 0, 17, 4)]
"""What an environment says; after the empty one a cut turn goes on by itself."""
NEW_START = random_ids(GENERATOR, 8)
LENGTH, NUM_TURNS = 5, 4


def sampler(model, **changes):
    sizes = {"max_batch": 64, "check_every": 1} | changes
    return TransformersSampler(model=model, eos_ids=ENDS, pad_id=PAD, **sizes)


def turns(engine, texts, *, num_samples=3, length=LENGTH):
    """Samples of each turn. Episodes end at random, one begins anew in the third turn."""
    settings = {"temperature": 0.9, "max_new_tokens": length}
    draws, result = random.Random(0), []
    for turn in range(NUM_TURNS):
        seeds = [derive_seed(0, turn, i) for i in range(len(texts))]
        groups = engine.sample(texts, seeds, num_samples=num_samples, **settings)
        result.append([sample for group in groups for sample in group])
        texts = [
            [*text, *sample.token_ids, *REPLIES[draws.randrange(len(REPLIES))]]
            for text, group in zip(texts, groups, strict=True)
            for sample in group
            if draws.random() < 0.8
        ] + [NEW_START] * (turn == 1)
        num_samples = 1
    return result


def assert_equal(found, expected, tolerance):
    for ours, theirs in zip(found, expected, strict=True):
        assert [item.token_ids for item in ours] == [item.token_ids for item in theirs]
        for item, other in zip(ours, theirs, strict=True):
            assert item.logprobs == pytest.approx(other.logprobs, abs=tolerance)
            assert item.finish_reason == other.finish_reason


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sizes", [{}, {"max_batch": 5}, {"check_every": 3}])
def test_turns_of_a_session_are_those_sampled_from_the_whole_texts(family, sizes):
    engine = sampler(load_exact(family), **sizes)
    expected = turns(engine, STARTS)
    with engine.session():
        actual = turns(engine, STARTS)
    assert_equal(actual, expected, 1e-10)
    assert all({"stop", "length"} == {item.finish_reason for item in turn} for turn in actual[:2])


@pytest.mark.parametrize("family", FAMILIES)
def test_in_float32_they_are_equal_within_rounding_and_the_first_turn_to_the_bit(family):
    engine = sampler(load(family))
    expected = turns(engine, STARTS)
    with engine.session():
        actual = turns(engine, STARTS)
    assert actual[0] == expected[0]
    assert_equal(actual, expected, 2e-5)


def test_a_window_counts_the_tokens_of_the_text():
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"num_hidden_layers": 2, "intermediate_size": 16, "vocab_size": 32}
    config = MistralConfig(**sizes, sliding_window=4, initializer_range=0.5)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").double()
    attention.use_attention(model)
    engine = sampler(model)
    expected = turns(engine, STARTS)
    with engine.session():
        assert_equal(turns(engine, STARTS), expected, 1e-6)


def count_tokens(model):
    """List that grows by the numbers of tokens which the model reads."""
    counts = []
    model.register_forward_pre_hook(
        lambda _module, _args, inputs: counts.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    return counts


def read_three_turns(engine, counts):
    """Tokens read in each of three turns of 4 tokens, with a reply of 2 tokens between."""
    texts, settings = [[5] * 20, [6] * 30], {"temperature": 1.0, "max_new_tokens": 4}
    numbers = []
    for turn in range(3):
        counts.clear()
        groups = engine.sample(texts, [turn, 7 + turn], num_samples=1, **settings)
        numbers.append(sum(counts))
        texts = [
            [*text, *group[0].token_ids, 8, 9] for text, group in zip(texts, groups, strict=True)
        ]
    return numbers


def test_a_turn_of_a_session_reads_new_tokens_alone():
    model = load("llama")
    counts = count_tokens(model)
    engine = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=8)
    # Prompts padded to the longest, then three tokens of each: the fourth is drawn, not read.
    assert read_three_turns(engine, counts) == [60 + 6, 72 + 6, 84 + 6]
    with engine.session():
        # The fourth token, the reply, and three tokens.
        assert read_three_turns(engine, counts) == [60 + 6, 6 + 6, 6 + 6]
    assert read_three_turns(engine, counts) == [60 + 6, 72 + 6, 84 + 6]


def test_a_long_reply_to_one_and_a_new_prompt_cost_the_others_nothing():
    model = load("llama")
    counts = count_tokens(model)
    engine = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=8)
    texts, settings = [[5] * 20, [6] * 20, [7] * 20], {"temperature": 1.0, "max_new_tokens": 2}
    with engine.session():
        groups = engine.sample(texts, [0, 1, 2], num_samples=1, **settings)
        replies = [[8], [8, 9], [10] * 40]
        texts = [
            [*text, *group[0].token_ids, *reply]
            for text, group, reply in zip(texts, groups, replies, strict=True)
        ]
        counts.clear()
        engine.sample([*texts, [9] * 30], [3, 4, 5, 6], num_samples=1, **settings)
    # Two side by side that read 2 and 3 tokens, one of 41, one of 30; then one token of each.
    assert sorted(counts) == [4, 6, 30, 41]


def test_at_most_max_batch_rows_of_the_last_call_stay_and_none_after_the_session():
    model = load("llama")
    counts = count_tokens(model)
    engine = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=2)
    texts, settings = [[5] * 9, [6] * 9, [7] * 9], {"temperature": 1.0, "max_new_tokens": 2}
    with engine.session():
        groups = engine.sample(texts, [0, 1, 2], num_samples=1, **settings)
        texts = [[*text, *group[0].token_ids, 8] for text, group in zip(texts, groups, strict=True)]
        counts.clear()
        engine.sample(texts[::-1], [3, 4, 5], num_samples=1, **settings)
        # Two of two new tokens and one of all twelve, each with one more token.
        assert counts == [4, 2, 12, 1]
        engine.sample([[9]], [6], num_samples=1, **settings)
        counts.clear()
        # Not continued in the call before, so dropped.
        engine.sample(texts[:1], [3], num_samples=1, **settings)
        assert counts == [12, 1]
    assert engine._rows is None


def test_what_the_next_turn_has_copied_is_freed_layer_by_layer(monkeypatch):
    events, engine = [], sampler(load("llama"))
    release, hold = GrowingLayer.release, GrowingLayer.hold
    with engine.session():
        (samples,) = engine.sample([[5] * 9], [0], num_samples=2, temperature=1.0, max_new_tokens=2)
        texts = [[5] * 9 + sample.token_ids for sample in samples]
        monkeypatch.setattr(GrowingLayer, "hold", lambda *a: events.append("new") or hold(*a))
        monkeypatch.setattr(GrowingLayer, "release", lambda *a: events.append("old") or release(*a))
        engine.sample(texts, [1, 2], num_samples=1, temperature=1.0, max_new_tokens=1)
    assert events[:4] == ["new", "old", "new", "old"]


def test_a_session_that_fails_leaves_no_cache():
    engine = sampler(load("llama"))
    with pytest.raises(ValueError, match="empty"), engine.session():
        engine.sample([[]], [0], num_samples=1, temperature=1.0, max_new_tokens=2)
    assert engine._rows is None
    assert isinstance(engine, SessionSampler)


def test_several_samples_of_a_prompt_that_continues_a_row():
    engine = sampler(load_exact("llama"))
    settings = {"temperature": 1.0, "max_new_tokens": 4}

    def expand():
        (samples,) = engine.sample([STARTS[1]], [0], num_samples=1, **settings)
        text = [*STARTS[1], *samples[0].token_ids, 9]
        return engine.sample([text, text], [1, 2], num_samples=3, **settings)

    expected = expand()
    with engine.session():
        assert_equal(expand(), expected, 1e-10)


def test_in_two_processes_a_row_stays_where_it_was_read():
    model = load_exact("llama")
    counts = count_tokens(model)
    engine = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=8)
    refreshes = []
    shared = DataParallelSampler(engine, refresh=lambda: refreshes.append(1))

    def play():
        texts, limits, numbers, actual = [[5] * 20, [6] * 30, [7] * 8, [8]], [4, 2, 3, 4], [], []
        for turn in range(3):
            counts.clear()
            seeds = [turn + i for i in range(len(texts))]
            groups = shared.sample(
                texts, seeds, num_samples=1, temperature=1.0, max_new_tokens=limits
            )
            numbers.append(sum(counts))
            actual += groups
            # The first ends, so that each other one has another number in the next turn.
            texts = [
                [*text, *group[0].token_ids, 9] for text, group in zip(texts, groups, strict=True)
            ][1:]
            limits = limits[1:]
        return numbers, actual

    def compare():
        numbers, expected = play()
        num_refreshes = len(refreshes)
        with shared.session():
            numbers_in_session, actual = play()
        return expected, actual, numbers, numbers_in_session, num_refreshes, len(refreshes)

    expected, actual, numbers, numbers_in_session, before, after = in_processes(2, compare)
    assert_equal(actual, expected, 1e-10)
    assert [len(group[0].token_ids) for group in actual] == [4, 2, 3, 4, 2, 3, 4, 3, 4]
    # Of the first rank. Row 2 alone goes on there: its last token, the reply and two tokens.
    assert numbers_in_session == [numbers[0], 2 + 2, 2 + 2]
    assert (before, after) == (3, 4)


def test_the_longest_entry_that_a_text_begins_with():
    table = PrefixTable({(1,): "a", (1, 2, 3): "b", (1, 2, 3, 4, 9): "c", (5, 6): "d"})
    texts = [[1, 2, 3, 4, 5], [1, 2, 3], [1, 2], [1, 2, 3, 4, 9], [5, 7], [5, 6, 0], [0], []]
    assert [table.find(text) for text in texts] == ["b", "b", "a", "c", None, "d", None, None]
    assert PrefixTable({}).find([1]) is None
