"""The prediction against live tensor bytes of the loops themselves."""

import pytest
from live_memory import LiveMemory
from step_memory import BIGGER, COMPLETION, EMBEDDED, PROMPT, SAMPLES, Measured, build, prompt
from tiny_checkpoints import PAD, compute

from stages.algorithms.memory import prediction
from stages.algorithms.memory.prediction import Decoding
from stages.engines.transformers import TransformersSampler

METHODS = ("sft", "dpo", "reward_model", "grpo", "ppo")
BF16 = {"dtype": "bfloat16"}
CHECKPOINTED = {"gradient_checkpointing": True}


@pytest.mark.parametrize(
    ("method", "changes", "tolerance"),
    [
        *((method, {}, 0.06) for method in METHODS),
        ("sft", BF16, 0.06),
        ("dpo", CHECKPOINTED, 0.1),
        ("dpo", {"rank": 8}, 0.06),
        ("dpo", BF16 | {"rank": 8}, 0.06),
        ("ppo", {"rank": 8}, 0.06),
        # Which block's casts are there when the most is held is not told.
        ("dpo", BF16 | CHECKPOINTED, 0.25),
    ],
)
def test_what_an_update_of_the_embedded_model_takes(method, changes, tolerance):
    measured = Measured(method, EMBEDDED, **changes)
    predicted, peak = measured.predicted(), measured.peak()
    above = peak - predicted.held
    assert max(predicted.phases.values()) == pytest.approx(above, rel=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "changes"), [("dpo", {}), ("ppo", {"rank": 8}), ("dpo", BF16), ("dpo", CHECKPOINTED)]
)
def test_a_larger_model_of_which_states_are_the_most(method, changes):
    measured = Measured(method, BIGGER, rows=2, **changes)
    predicted, peak = measured.predicted(), measured.peak()
    assert max(predicted.phases.values()) == pytest.approx(peak - predicted.held, rel=0.1)


@pytest.mark.parametrize("rank", [0, 8])
@pytest.mark.parametrize("method", METHODS)
def test_weights_gradients_and_moments_are_exact(method, rank):
    measured = Measured(method, EMBEDDED, rank=rank, rows=1)
    predicted = measured.predicted()
    for role, model in measured.models.items():
        sizes = predicted.models[role]
        trained = [p for p in model.parameters() if p.requires_grad]
        if not any(one.role == role and one.trained for one in measured.residents):
            trained = []
        assert sizes["parameters"] == sum(p.numel() for p in model.parameters())
        assert sizes["trained"] == sum(p.numel() for p in trained)
        assert sizes["weights"] == sum(p.nbytes for p in model.parameters())
        assert sizes["gradients"] == sum(p.nbytes for p in trained)
        assert sizes["moments"] == 2 * sizes["gradients"]


@pytest.mark.parametrize("method", ["sft", "ppo"])
def test_between_steps_weights_and_moments_are_all_there_is(method):
    measured = Measured(method, EMBEDDED, rows=1)
    held = measured.predicted().held
    measured.peak()
    # The rest is rows of the batch and of the rollouts, and the tables of positions.
    assert held <= measured.between <= held + 100_000


@pytest.mark.parametrize("shape", [EMBEDDED, BIGGER], ids=["embedded", "bigger"])
def test_what_sampling_takes(shape):
    model = build(shape, "language_model", compute(), 0).eval()
    rows = 64
    sampler = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=rows)
    held = [*model.parameters(), *model.buffers()]
    with LiveMemory(held) as live:
        before = live.live
        sampler.sample(
            [prompt(i) for i in range(rows // SAMPLES)],
            list(range(rows // SAMPLES)),
            num_samples=SAMPLES,
            temperature=1.0,
            max_new_tokens=COMPLETION,
        )
    batch = Decoding(rows=rows, samples=SAMPLES, prompt=PROMPT, new=COMPLETION)
    assert prediction.decoding(shape, batch, 4) == pytest.approx(live.peak - before, rel=0.25)


def test_a_tenth_of_the_gpu_is_left_free():
    assert prediction.fits(72 * prediction.GIB, 80.0)
    assert not prediction.fits(72 * prediction.GIB + 1, 80.0)
