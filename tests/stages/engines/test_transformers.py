import math
from contextlib import nullcontext
from itertools import chain

import numpy as np
import pytest
import torch
from collated import collate
from tiny_checkpoints import (
    CPU,
    EOS,
    FAMILIES,
    PAD,
    VOCAB,
    build,
    checkpoint,
    compute,
    load,
    plain_logprobs,
    random_ids,
)
from transformers import (
    AutoTokenizer,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    GenerationConfig,
)

from stages import meter
from stages.engines import growing_cache
from stages.engines import transformers as engine
from stages.engines.transformers import TransformersSampler, fixed_point_cumulative, sample_tokens
from stages.models import model_tokenizer, policy
from stages.models.batch import Group
from stages.models.policy import Policy
from stages.sampler import Engine
from stages.seeding import derive_seed

NUM_PROMPTS, TEMPERATURE, LENGTH = 6, 0.7, 12
# So many that some rows end early and leave the batch.
ENDS = [EOS, 2, 3, 4, 5]
PROMPTS = [
    random_ids(torch.Generator().manual_seed(i), length)
    for i, length in enumerate([3, 9, 1, 5, 5, 7])
]
SEEDS = [derive_seed(0, "test", i) for i in range(NUM_PROMPTS)]


def sampler(model, max_batch=64, check_every=1):
    return TransformersSampler(
        model=model, eos_ids=frozenset(ENDS), pad_id=PAD, max_batch=max_batch,
        check_every=check_every,
    )  # fmt: skip


def sample(model, chosen, num_samples=4, max_batch=64, check_every=1, **changes):
    arguments = {"temperature": TEMPERATURE, "max_new_tokens": LENGTH} | changes
    return sampler(model, max_batch, check_every).sample(
        [PROMPTS[i] for i in chosen],
        [SEEDS[i] for i in chosen],
        num_samples=num_samples,
        **arguments,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_completion_does_not_depend_on_batching_order_or_the_number_of_samples(family):
    # float64, so that no draw sits within the rounding of a batched matrix product.
    model = load(family).double()
    expected = sample(model, range(NUM_PROMPTS))
    ids = [[s.token_ids for s in samples] for samples in expected]
    assert len({tuple(i) for samples in ids for i in samples}) > NUM_PROMPTS
    for max_batch in (1, 8, 13):
        actual = sample(model, range(NUM_PROMPTS), max_batch=max_batch)
        assert [[s.token_ids for s in samples] for samples in actual] == ids
    for check_every in (5, LENGTH, LENGTH + 1):
        assert sample(model, range(NUM_PROMPTS), check_every=check_every) == expected
    order = [4, 0, 5, 2, 1, 3]
    actual = sample(model, order)
    assert [[s.token_ids for s in samples] for samples in actual] == [ids[i] for i in order]
    alone = sample(model, [3], num_samples=2)
    assert [s.token_ids for s in alone[0]] == ids[3][:2]
    longer = sample(model, [3], max_new_tokens=30)
    assert [s.token_ids[:LENGTH] for s in longer[0]] == ids[3]
    assert 0.2 < np.mean([s.finish_reason == "stop" for row in expected for s in row]) < 1


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_completions_are_those_of_generate(family):
    model = load(family).eval()
    actual = sample(model, range(NUM_PROMPTS), num_samples=1, temperature=0.0, max_new_tokens=16)
    for prompt, samples in zip(PROMPTS, actual, strict=True):
        expected = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            generation_config=GenerationConfig(
                do_sample=False, max_new_tokens=16, eos_token_id=ENDS, pad_token_id=PAD
            ),
        )
        assert samples[0].token_ids == expected[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_reported_log_probs_are_the_trainers_at_that_temperature(family):
    model = load(family)
    result = sample(model, range(NUM_PROMPTS), max_batch=8)
    groups = [
        Group(prompt_ids=prompt, completions=[s.token_ids for s in samples], indices=range(4))
        for prompt, samples in zip(PROMPTS, result, strict=True)
    ]
    batch = collate(groups, 64, PAD, CPU)
    ours, *_ = Policy(model)(batch, temperature=TEMPERATURE)
    flat = [s for samples in result for s in samples]
    for row, mask, reported in zip(ours, batch.mask, flat, strict=True):
        assert reported.logprobs == pytest.approx(row[mask].tolist(), abs=1e-4)


def test_greedy_reports_log_probs_of_the_untempered_distribution():
    model = load("llama")
    (samples,) = sample(model, [1], num_samples=1, temperature=0.0)
    expected = plain_logprobs(model.eval(), PROMPTS[1], samples[0].token_ids)
    assert samples[0].logprobs == pytest.approx(expected.tolist(), abs=1e-4)


def test_frequencies_of_sampled_tokens_are_the_tempered_probabilities():
    model = load("llama").eval()
    num_samples = 4000
    drawn = sampler(model, max_batch=num_samples).sample(
        [PROMPTS[0]], [SEEDS[0]], num_samples=num_samples, temperature=2.0, max_new_tokens=1
    )
    counts = np.bincount([s.token_ids[0] for s in drawn[0]], minlength=VOCAB)
    logits = model(torch.tensor([PROMPTS[0]])).logits[0, -1]
    expected = num_samples * (logits / 2.0).softmax(-1).detach().numpy()
    common = expected >= 5
    assert common.sum() > 5, "a distribution worth testing"
    statistic = ((counts - expected)[common] ** 2 / expected[common]).sum()
    # Chi-square with about `common.sum()` degrees of freedom: mean n, standard deviation sqrt(2n).
    assert statistic < common.sum() + 4 * np.sqrt(2 * common.sum())


def test_a_completion_ends_with_the_end_token_or_at_the_limit():
    model = load("gpt2")
    flat = [s for samples in sample(model, range(NUM_PROMPTS), num_samples=16) for s in samples]
    assert {s.finish_reason for s in flat} == {"stop", "length"}
    for item in flat:
        assert (item.finish_reason == "stop") == (item.token_ids[-1] in ENDS)
        assert not set(ENDS) & set(item.token_ids[:-1])
        assert len(item.token_ids) == LENGTH or item.finish_reason == "stop"
        assert len(item.logprobs) == len(item.token_ids)


def test_every_prompt_may_have_a_limit_of_its_own():
    model, most = load("llama").double(), [1, 3, 2, LENGTH, 5, 4]
    whole = sample(model, range(NUM_PROMPTS))
    result = sample(model, range(NUM_PROMPTS), max_new_tokens=most)
    for limit, samples, longer in zip(most, result, whole, strict=True):
        for item, other in zip(samples, longer, strict=True):
            assert item.token_ids == other.token_ids[:limit]
            assert item.logprobs == pytest.approx(other.logprobs[:limit], abs=1e-6)
            is_cut = len(other.token_ids) > limit
            assert item.finish_reason == ("length" if is_cut else other.finish_reason)


def test_the_model_is_left_in_the_mode_it_was_in():
    model = load("llama").train()
    sample(model, [0])
    assert model.training
    sample(model.eval(), [0])
    assert not model.training


def test_an_empty_prompt_and_several_greedy_samples_are_refused():
    model = load("llama")
    with pytest.raises(ValueError, match="found an empty one"):
        sampler(model).sample([[]], [0], num_samples=1, temperature=1.0, max_new_tokens=2)
    with pytest.raises(ValueError, match="found num_samples 2: set it to 1"):
        sample(model, [0], num_samples=2, temperature=0.0)


def test_no_prompt_gives_no_completion():
    assert sample(load("llama"), []) == []


def test_a_hand_worked_draw():
    # p = 1/2, 1/4, 1/4: the cumulative sums are 1/2, 3/4, 1.
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log().repeat(4, 1)
    uniform = torch.tensor([0.0, 0.5, 0.7499, 0.75], dtype=torch.float64)
    tokens, logprobs = sample_tokens(logits, 1.0, uniform)
    assert tokens.tolist() == [0, 1, 1, 2]
    assert logprobs.exp().tolist() == pytest.approx([0.5, 0.25, 0.25, 0.25])
    # At temperature 1/2 the probabilities are squared: 4/6, 1/6, 1/6.
    tokens, logprobs = sample_tokens(logits, 0.5, uniform)
    assert tokens.tolist() == [0, 0, 1, 1]
    assert logprobs[0].exp().item() == pytest.approx(4 / 6)


def test_a_token_of_probability_0_is_never_drawn_not_even_at_the_ends_of_the_interval():
    logits = torch.tensor([[-torch.inf, 0.3, 0.2, -torch.inf, -torch.inf]]).repeat(2, 1)
    # In float32 the largest number below 1 that the stream can yield is 1.
    uniform = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    tokens, logprobs = sample_tokens(logits, 1.0, uniform)
    assert tokens.tolist() == [1, 2]
    assert logprobs.isfinite().all()


def test_fixed_point_sums_draw_the_same_tokens():
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.randn(50, 1000, generator=generator).mul(3).softmax(-1)
    exact = fixed_point_cumulative(probabilities)
    torch.testing.assert_close((exact / 2**40).float(), probabilities.cumsum(-1))
    # A whole number, so the order of the sum cannot matter.
    assert torch.equal(exact, exact.round())


def chat_tokenizer():
    words = model_tokenizer.train_tokenizer(["a few words"], 700)
    words.chat_template = (
        "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    return words


def test_a_chat_model_stops_at_any_of_its_end_tokens(tmp_path):
    words = chat_tokenizer()
    model = load("llama")
    model.resize_token_embeddings(len(words))
    model.generation_config.eos_token_id = [words.eos_token_id, 40, 41]
    policy.save_model(model, words, tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    loaded = policy.load_policy(tmp_path, compute(), CPU)
    live = engine.make_sampler(loaded, again, max_batch=32)
    assert live.eos_ids == {words.eos_token_id, 40, 41}
    messages = [{"role": "user", "content": "a few"}]
    prompt = again.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    # Every end token is made certain in turn, by a body that always says the same.
    for end in sorted(live.eos_ids):
        with torch.no_grad():
            loaded.get_output_embeddings().weight.zero_()
            loaded.model.norm.weight.fill_(1.0)
        loaded.get_output_embeddings().register_forward_hook(
            lambda _module, _args, logits, end=end: logits.index_fill(-1, torch.tensor(end), 99.0)
        )
        (samples,) = live.sample([prompt], [0], num_samples=2, temperature=1.0, max_new_tokens=5)
        assert {s.finish_reason for s in samples} == {"stop"}
        loaded.get_output_embeddings()._forward_hooks.clear()


def test_a_tokenizers_end_token_counts_even_where_the_model_names_none():
    words = model_tokenizer.train_tokenizer(["a few words"], 700)
    model = load("llama")
    model.generation_config.eos_token_id = None
    assert engine.make_sampler(model, words, max_batch=4).eos_ids == {words.eos_token_id}


@pytest.mark.parametrize("family", FAMILIES)
def test_it_draws_from_the_weights_as_they_are_now(family):
    model = policy.load_policy(checkpoint(family), compute(), CPU)
    live = sampler(model)
    before = live.sample([PROMPTS[0]], [0], num_samples=8, temperature=1.0, max_new_tokens=5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-1.5)
    after = live.sample([PROMPTS[0]], [0], num_samples=8, temperature=1.0, max_new_tokens=5)
    assert before != after


@pytest.mark.parametrize("family", FAMILIES)
def test_broken_off_after_a_token_it_has_the_tokens_that_it_has_otherwise(family):
    model = load(family).double()
    breaks = frozenset([6, 7, 8, 9, ENDS[-1]])
    whole = sample(model, range(NUM_PROMPTS), num_samples=8)
    broken = sample(model, range(NUM_PROMPTS), num_samples=8, break_after=breaks)
    actual = set()
    for item, part in zip(chain(*whole), chain(*broken), strict=True):
        places = [place for place, token in enumerate(item.token_ids) if token in breaks]
        length = places[0] + 1 if places else len(item.token_ids)
        assert part.token_ids == item.token_ids[:length]
        assert part.logprobs == pytest.approx(item.logprobs[:length], abs=1e-9)
        last = part.token_ids[-1]
        # an end of sequence is one even where it is named as a place to break off
        expected = "stop" if last in ENDS else "step" if last in breaks else "length"
        assert part.finish_reason == expected
        actual.add(expected)
    assert actual == {"stop", "step", "length"}


def test_a_completion_that_was_broken_off_has_no_ending():
    (samples,) = sample(load("llama"), [0], num_samples=1, break_after=frozenset(range(VOCAB)))
    (drawn,) = samples
    assert len(drawn.token_ids) == 1
    if drawn.finish_reason == "step":
        with pytest.raises(AssertionError):
            _ = drawn.ending
    whole = sample(load("llama"), [0])[0][0]
    assert whole.ending == whole.finish_reason


READ = [[3, 4, 5], [6], [7, 8, 9, 10, 11, 12], [3, 4, 5, 6]]


def reader(model, max_tokens: int = 4096) -> TransformersSampler:
    return TransformersSampler(
        model=model, eos_ids=frozenset([EOS]), pad_id=PAD, max_batch=8, max_tokens=max_tokens
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("max_tokens", [1, 8, 4096])
def test_what_it_reads_is_the_model_s_own_distribution_whatever_the_batches(family, max_tokens):
    model = load(family)
    result = dict(reader(model, max_tokens).next_logprobs(READ, [5, 2, 31]))
    assert sorted(result) == [*range(len(READ))]
    for number, row in result.items():
        prompt = READ[number]
        with torch.no_grad():
            logprobs = model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
        assert row == pytest.approx(logprobs[[5, 2, 31]].tolist(), abs=1e-5)


def test_all_tokens_together_have_probability_one():
    model = load("llama")
    ((_, row),) = reader(model).next_logprobs([[3, 4]], range(VOCAB))
    assert math.fsum(math.exp(value) for value in row) == pytest.approx(1.0, abs=1e-5)


def test_it_is_a_reader_and_leaves_the_model_as_it_was():
    model = load("llama").train()
    assert isinstance(reader(model), Engine)
    list(reader(model).next_logprobs([[3]], [1]))
    assert model.training
    assert not list(reader(model).next_logprobs([], [1]))


def test_an_empty_prompt_and_one_without_positions_are_refused():
    model = load("llama")
    with pytest.raises(ValueError, match="empty"):
        list(reader(model).next_logprobs([[]], [1]))
    with pytest.raises(ValueError, match=r"128 positions.*max_prompt_tokens"):
        list(reader(model).next_logprobs([[3] * 129], [1]))


@pytest.mark.parametrize("check_every", [1, 5])
def test_every_completion_is_counted_once_and_early_ones_before_the_call_ends(check_every):
    meter.COUNTS.clear()
    counted = []
    model = load("llama").double()
    model.register_forward_hook(lambda *_: counted.append(meter.COUNTS["completions"]))
    sample(model, range(NUM_PROMPTS), max_batch=13, check_every=check_every)
    assert meter.COUNTS["completions"] == NUM_PROMPTS * 4
    assert len(set(counted)) > 2, "it moves within a call"
    list(sampler(model).next_logprobs(PROMPTS, [1, 2]))
    assert meter.COUNTS["messages"] == NUM_PROMPTS


def test_casts_of_a_policys_weights_are_kept_within_a_call_and_not_beyond_it(monkeypatch):
    trained = build("llama")

    def sample_and_count_casts():
        with torch.profiler.profile() as profile:
            samples = sample(trained, range(NUM_PROMPTS))
        return samples, sum(event.name == "aten::_to_copy" for event in profile.events())

    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        first = sample(trained, range(NUM_PROMPTS))
        with torch.no_grad():
            for weight in trained.parameters():
                weight.mul_(-1.5)
        second, num_casts = sample_and_count_casts()
        assert not torch.is_autocast_cache_enabled()
        monkeypatch.setattr(engine, "cast_weights_once", lambda _device: nullcontext())
        again, num_casts_at_every_token = sample_and_count_casts()
        assert again == second != first
        assert num_casts < num_casts_at_every_token


def test_a_model_that_also_reads_images_samples_as_its_text_model():
    """Gemma 3 from 4 B on: layers and positions are numbers of its text_config."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2}
    text = {"num_key_value_heads": 1, "head_dim": 8, "vocab_size": VOCAB, "sliding_window": 4}
    text |= {"max_position_embeddings": 21, "initializer_range": 0.3}
    config = Gemma3Config(
        text_config=sizes | text, mm_tokens_per_image=1,
        vision_config=sizes | {"image_size": 28, "patch_size": 14},
    )  # fmt: skip
    torch.manual_seed(0)
    built = Gemma3ForConditionalGeneration(config)
    model = policy.prepare_model(built, compute(row_tokens=0), CPU).eval()
    growing_cache.check_cache(model)
    for prompt, samples in zip(PROMPTS, sample(model, range(NUM_PROMPTS)), strict=True):
        for drawn in samples:
            expected = plain_logprobs(model, prompt, drawn.token_ids, TEMPERATURE)
            torch.testing.assert_close(torch.tensor(drawn.logprobs), expected, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="21 positions"):
        sample(model, [1], max_new_tokens=LENGTH + 1)
