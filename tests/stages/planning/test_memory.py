"""The prediction of a step's memory against live bytes of the same loop on real tensors."""

from dataclasses import replace

import pytest
from live_memory import LiveMemory
from several_processes import in_processes
from step_memory import BIGGER, COMPLETION, EMBEDDED, PROMPT, SAMPLES, make_trial, measure_peak
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config

from stages.engines.transformers import TransformersSampler
from stages.planning import cost
from stages.planning.cost import LOOPS, choose_layers, keep_layers

BF16, CHECKPOINTED = {"dtype": "bfloat16"}, {"gradient_checkpointing": True}
FOUR_LAYERS = BIGGER | {"num_hidden_layers": 4}
FAST = [("train_dpo", CHECKPOINTED), ("train_grpo", {})]
"""Entry point and changes."""
SLOW = [
    ("train_sft", {}), ("reward_preference", {"rank": 8}), ("train_sft", BF16),
    ("train_sft", {"preset": {"name": "forward_kl"}}), ("train_dpo", {}),
    ("reward_outcome", {}), ("reward_process", {}),
    ("train_dpo", BF16 | CHECKPOINTED | {"rank": 8}), ("train_grpo", BF16 | {"rank": 8}),
    ("train_grpo", {"rank": 8, "preset": {"name": "opd"}}), ("train_ppo", {"rank": 8}),
]  # fmt: skip
SAMPLING = {"pool", "sample", "play_policy", "steps_completions", "label_revision", "label_judge"}
"""Entry points that only sample: below."""


def predict(trial):
    return max(cost.predict_peaks(trial).values())


def test_every_loop_has_a_row():
    assert {row[0] for row in FAST + SLOW} | SAMPLING == set(LOOPS)


@pytest.mark.parametrize(("entry_point", "changes"),
    [*FAST, *(pytest.param(*row, marks=pytest.mark.weekly) for row in SLOW)])  # fmt: skip
def test_the_peak_of_a_step(entry_point, changes):
    trial = make_trial(entry_point, EMBEDDED, **changes)
    assert predict(trial) == pytest.approx(measure_peak(trial), rel=0.01)


@pytest.mark.weekly
def test_a_policy_that_waits_for_its_value_model_is_planned_as_it_is_trained():
    """Later steps have its gradients and moments, though the first ones do not."""
    at_once, waiting = (predict(make_trial("train_ppo", EMBEDDED,
        preset={"value_warmup_steps": steps})) for steps in (0, 2))  # fmt: skip
    assert waiting == at_once


def test_an_optimizer_step_has_two_micro_batches_of_a_process():
    # 64 tokens a row, 256 a micro-batch.
    trial = make_trial("train_sft", EMBEDDED, num_processes=3)
    assert [len(trial.numbers(number, 1)) for number in (3, 9, 24, 99)] == [1, 3, 8, 8]


@pytest.mark.weekly
@pytest.mark.parametrize(("number", "entry_point", "changes"), [(3, "train_sft", {}), (2,
    "train_dpo", BF16 | {"rank": 8}), (2, "train_grpo", {})] )  # fmt: skip
def test_the_peak_of_the_first_of_several_processes(number, entry_point, changes):
    trial = make_trial(entry_point, FOUR_LAYERS, rows=2, num_processes=number, **changes)
    real = in_processes(number, lambda: measure_peak(trial))
    assert predict(trial) == pytest.approx(real, rel=0.1)


@pytest.mark.weekly
@pytest.mark.parametrize(("entry_point", "changes"),
    [("train_dpo", {}), ("train_dpo", CHECKPOINTED), ("train_ppo", {"rank": 8})])  # fmt: skip
def test_the_peak_of_eight_layers_is_on_the_line_of_two_and_four(entry_point, changes):
    trial = make_trial(entry_point, BIGGER, rows=2, **changes)
    assert predict(trial) == pytest.approx(measure_peak(trial), rel=0.01)
    # With a row of few tokens the peak is elsewhere in eight layers than in two.
    few = make_trial("train_sft", BIGGER, rows=1)
    assert cost.predict_peaks(few) == pytest.approx(cost.measure_peaks(few, 8), rel=0.03)


def test_layers_to_measure():
    base = LlamaConfig(num_hidden_layers=2)
    assert [choose_layers(keep_layers(base, n)) for n in (2, 4, 5, 30)] == [
        (2,), (4,), (2, 4), (2, 4)]  # fmt: skip
    assert base.num_hidden_layers == 2
    mixed = Qwen3Config(num_hidden_layers=12, layer_types=["full_attention"] * 12)
    mixed.layer_types = [("full", "sliding", "sliding")[i % 3] for i in range(12)]
    assert choose_layers(mixed) == (3, 6)
    assert keep_layers(mixed, 6).layer_types == mixed.layer_types[:6]


@pytest.mark.parametrize("shape", [
    pytest.param(EMBEDDED, id="embedded"),
    pytest.param(BIGGER, id="bigger", marks=pytest.mark.weekly),
])  # fmt: skip
def test_the_peak_of_sampling(shape):
    rows, trial = 64, replace(make_trial("train_grpo", shape), entry_point="pool")
    with LiveMemory() as live:
        model = LlamaForCausalLM(trial.base).eval().requires_grad_(False)
        live.peak = live.live
        sampler = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=0, max_batch=rows)
        numbers = list(range(rows // SAMPLES))
        prompts = [[5 + i] * PROMPT for i in numbers]
        settings = {"temperature": 1.0, "max_new_tokens": COMPLETION}
        sampler.sample(prompts, numbers, num_samples=SAMPLES, **settings)
    predicted = cost.predict_peaks(trial)["sampling"]
    assert predicted == pytest.approx(live.peak, rel=0.1)
    # A judge thinks once about each of 64 requests, none of which share their prompt.
    assert cost.predict_peaks(replace(trial, entry_point="label_judge"))["sampling"] > predicted


@pytest.mark.slow
@pytest.mark.parametrize(("entry_point", "changes"),
    [("train_grpo", {}), ("train_ppo", {"preset": {"value_init": "policy"}})])  # fmt: skip
def test_a_trainer_with_vllm_has_no_cache_of_the_projects_sampler(entry_point, changes):
    trial = make_trial(entry_point, EMBEDDED, rows=2, **changes)
    alone = cost.predict_peaks(trial)
    trial.config.engine = "vllm"
    beside = cost.predict_peaks(trial)
    assert beside["sampling"] < alone["sampling"]
    assert beside["sampling"] < beside["forward pass"] < beside["update"] == alone["update"]


@pytest.mark.slow
def test_billions_of_weights_take_no_memory_to_plan_for():
    base = Qwen3Config(hidden_size=4096, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, intermediate_size=12288, vocab_size=151936,
        tie_word_embeddings=False, max_position_embeddings=4096)  # fmt: skip
    trial = make_trial("train_dpo", EMBEDDED, rows=1, rank=16, **BF16, **CHECKPOINTED)
    # 8.19e9 weights in float32, adapters of 16 (in + out) numbers on seven matrices of 36 layers
    # with their moments and gradients, and not much else for 88 tokens.
    assert 32.8e9 < predict(replace(trial, base=base)) < 36e9
