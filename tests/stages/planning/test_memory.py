"""The prediction of a step's memory against live bytes of the same loop on real tensors."""

import pytest
from live_memory import LiveMemory
from several_processes import in_processes
from step_memory import BIGGER, COMPLETION, EMBEDDED, PROMPT, SAMPLES, Measured, build, prompt
from tiny_checkpoints import PAD, compute
from transformers import Qwen3Config

from stages.engines.transformers import TransformersSampler
from stages.planning import memory
from stages.planning.memory import LOOPS, Trial

BF16, CHECKPOINTED = {"dtype": "bfloat16"}, {"gradient_checkpointing": True}
FOUR_LAYERS = BIGGER | {"num_hidden_layers": 4}
FAST = [
    # entry point, changes; one row of each loop at least, and relative tolerance
    ("train_sft", {}, 0.01), ("train_sft", BF16, 0.01), ("train_dpo", {}, 0.01),
    ("train_sft", {"preset": {"name": "forward_kl"}}, 0.01), ("train_dpo", CHECKPOINTED, 0.01),
    ("reward_preference", {"rank": 8}, 0.01), ("reward_outcome", {}, 0.01),
    ("reward_process", {}, 0.1),  # one token of a solution more or less is rounding
]  # fmt: skip
SLOW = [
    ("train_dpo", BF16 | CHECKPOINTED | {"rank": 8}, 0.01), ("train_grpo", {}, 0.01),
    ("train_grpo", BF16 | {"rank": 8}, 0.01), ("train_ppo", {"rank": 8}, 0.01),
    ("train_grpo", {"rank": 8, "preset": {"name": "opd"}}, 0.01),
]  # fmt: skip
SAMPLING = {"pool", "sample", "play_policy", "steps_completions", "label_revision", "label_judge"}
"""Entry points that only sample: below."""


def predict(measured):
    return max(memory.predict_peaks(measured.trial()).values())


def test_every_loop_has_a_row():
    assert {row[0] for row in FAST + SLOW} | SAMPLING == set(LOOPS)


@pytest.mark.parametrize(("entry_point", "changes", "tolerance"),
    [*FAST, *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)])  # fmt: skip
def test_the_peak_of_a_step(entry_point, changes, tolerance):
    measured = Measured(entry_point, EMBEDDED, **{"rows": 4} | changes)
    assert predict(measured) == pytest.approx(measured.peak(), rel=tolerance)


def test_a_policy_that_waits_for_its_value_model_is_planned_as_it_is_trained():
    """Later steps have its gradients and moments, though the first ones do not."""
    at_once, waiting = (predict(Measured("train_ppo", EMBEDDED, rows=4,
        preset={"value_warmup_steps": steps})) for steps in (0, 2))  # fmt: skip
    assert waiting == at_once


@pytest.mark.weekly
@pytest.mark.parametrize(("number", "entry_point", "changes"), [(3, "train_sft", {}), (2,
    "train_dpo", BF16 | {"rank": 8}), (2, "train_grpo", {})] )  # fmt: skip
def test_the_peak_of_the_first_of_several_processes(number, entry_point, changes):
    measured = Measured(entry_point, FOUR_LAYERS, rows=2, num_processes=number, **changes)
    assert predict(measured) == pytest.approx(in_processes(number, measured.peak), rel=0.1)


@pytest.mark.weekly
@pytest.mark.parametrize(("entry_point", "changes"),
    [("train_dpo", {}), ("train_dpo", CHECKPOINTED), ("train_ppo", {"rank": 8})])  # fmt: skip
def test_the_peak_of_eight_layers_is_on_the_line_of_two_and_four(entry_point, changes):
    measured = Measured(entry_point, BIGGER, rows=2, **changes)
    assert predict(measured) == pytest.approx(measured.peak(), rel=0.01)
    # With a row of few tokens the peak is elsewhere in eight layers than in two.
    few = Measured("train_sft", BIGGER, rows=1).trial()
    assert memory.predict_peaks(few) == pytest.approx(memory.measure_peaks(few, 8), rel=0.03)


def sampling(shape):
    measured = Measured("train_grpo", shape)
    return Trial(entry_point="pool", config=measured.config(), base=measured.trial().base,
        prompt=PROMPT, completion=COMPLETION, samples=SAMPLES)  # fmt: skip


@pytest.mark.parametrize("shape", [EMBEDDED, BIGGER], ids=["embedded", "bigger"])
def test_the_peak_of_sampling(shape, monkeypatch):
    rows = 64
    model = build(shape, "policy", compute(), 0, trained=False).model.eval()
    sampler = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=rows)
    numbers = list(range(rows // SAMPLES))
    with LiveMemory([*model.parameters(), *model.buffers()]) as live:
        sampler.sample([prompt(i) for i in numbers], numbers, num_samples=SAMPLES, temperature=1.0,
            max_new_tokens=COMPLETION)  # fmt: skip
    calls, decode = [], TransformersSampler._decode

    def watch(self, *args):
        with self.model.register_forward_hook(lambda *_: calls.append(1)):
            return decode(self, *args)

    monkeypatch.setattr(TransformersSampler, "_decode", watch)
    assert memory.predict_peaks(sampling(shape))["sampling"] == pytest.approx(live.peak, rel=0.1)
    # The pass over the prompts alone: one token tells of any length.
    assert shape is BIGGER or len(calls) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("entry_point", "changes"),
    [("train_grpo", {}), ("train_ppo", {"preset": {"value_init": "policy"}})])  # fmt: skip
def test_a_trainer_with_vllm_has_no_cache_of_the_projects_own_sampler(entry_point, changes):
    measured = Measured(entry_point, EMBEDDED, rows=2, **changes)
    alone, trial = memory.predict_peaks(measured.trial()), measured.trial()
    trial.config.engine = "vllm"
    found = memory.predict_peaks(trial)
    held = sum(p.nbytes for model in measured.models.values() for p in model.parameters())
    assert held < found["sampling"] < alone["sampling"]
    assert found["sampling"] < found["forward pass"] < found["update"] == alone["update"]


@pytest.mark.slow
def test_billions_of_weights_take_no_memory_to_plan_for():
    base = Qwen3Config(hidden_size=4096, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, intermediate_size=12288, vocab_size=151936,
        tie_word_embeddings=False, max_position_embeddings=4096)  # fmt: skip
    config = Measured("train_dpo", EMBEDDED, rows=1, rank=16, **BF16, **CHECKPOINTED).config()
    trial = Trial(entry_point="train_dpo", config=config, base=base, prompt=PROMPT,
        completion=COMPLETION, samples=2)  # fmt: skip
    # 8.19e9 weights in float32, adapters of 16 (in + out) numbers on seven matrices of 36 layers
    # with their moments and gradients, and not much else for 88 tokens.
    assert 32.8e9 < max(memory.predict_peaks(trial).values()) < 36e9
