"""The counted passes against those that hooks on the models see."""

from collections import Counter

import pytest
import torch
from step_memory import COMPLETION, PROMPT, SAMPLES, Measured

from stages.loops import work

SHAPE = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "intermediate_size": 32, "vocab_size": 40,
}  # fmt: skip
ROW = PROMPT + SAMPLES * COMPLETION
PROMPTS = 4
"""Of an optimizer step."""


def watched(measured):
    """Positions that go through each body outside sampling, one group to a micro-batch: no row
    has padding, so every position of the input is a token."""
    measured.settings = measured.settings.model_copy(update={"max_tokens": 1})
    seen = Counter()
    for role, model in measured.models.items():

        def count(_, args, kwargs, role=role):
            if kwargs.get("past_key_values") is None:
                kind = "trained" if torch.is_grad_enabled() else "read"
                seen[role, kind] += kwargs["input_ids"].numel()

        model.model.base_model.register_forward_pre_hook(count, with_kwargs=True)
    return seen


def positions(metrics):
    return {
        tuple(name.split("/")[1:3]): count
        for name, count in metrics.items()
        if name.startswith("work/") and name.endswith("positions") and count
    }


@pytest.mark.parametrize(
    ("method", "preset"),
    [
        ("train_sft", {}),
        ("train_dpo", {}),
        ("reward_preference", {}),
        ("train_grpo", {}),
        ("train_grpo", {"num_epochs": 3, "num_minibatches": 2}),
        ("train_ppo", {}),
        ("train_ppo", {"num_epochs": 2, "num_minibatches": 2}),
    ],
)
def test_what_is_counted_is_what_the_models_saw(method, preset):
    measured = Measured(method, SHAPE, rows=PROMPTS // 2, preset=preset)
    seen = watched(measured)
    step = next(measured.steps())
    counted = positions(step.metrics)
    if method in ("train_grpo", "train_ppo"):
        # Each prompt is read once, and no completion's last token.
        sampled = PROMPTS * (PROMPT + SAMPLES * (COMPLETION - 1))
        assert counted.pop(("policy", "sampled")) == sampled
        assert step.metrics["work/policy/sampled/outputs"] == PROMPTS * SAMPLES * COMPLETION
    assert seen
    trained = "reward" if method == "reward_preference" else "policy"
    assert {
        (trained if role == "reward" else role, kind): n for (role, kind), n in seen.items()
    } == (counted)


def test_padding_is_not_counted():
    metrics = next(Measured("train_dpo", SHAPE, rows=2).steps()).metrics
    other = Measured("train_dpo", SHAPE, rows=2)
    other.settings = other.settings.model_copy(update={"max_tokens": 1})
    assert positions(metrics) == positions(next(other.steps()).metrics)


def test_a_summary_adds_up_and_lists_models_that_did_nothing():
    steps = [
        work.count_passes("policy", "trained", positions=5, outputs=2) | {"loss": 1.0},
        work.count_passes("policy", "trained", positions=7, outputs=3)
        | work.count_passes("policy", "read", positions=1),
    ]
    assert work.sum_work(steps, {"policy": {"parameters": 9}, "reference": {"parameters": 8}}) == {
        "policy": {
            "parameters": 9,
            "trained": {"positions": 12, "outputs": 5},
            "read": {"positions": 1, "outputs": 0},
        },
        "reference": {"parameters": 8},
    }
