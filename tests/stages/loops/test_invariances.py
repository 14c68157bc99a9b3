"""The gradient of every loop's optimizer step, what it logs and what it counts, in any layout.

Of rows in any order, in micro-batches of any size, of which several share a prompt or are packed
into one row. With `test_definitions`, which has one layout, this is all that a step promises.
"""

import functools
import random
from collections import Counter

import every_loop
import pytest
import torch
from every_loop import KIND, NUM_ROWS, ONE_EACH, RL, Setup
from tiny_checkpoints import FAMILIES

ALL = list(range(NUM_ROWS))
LAYOUTS = [
    {"row_tokens": 64, "pack_tokens": 0, "max_tokens": 1},
    {"row_tokens": 14, "pack_tokens": 40, "max_tokens": 20},
    {"row_tokens": 8, "pack_tokens": 80, "max_tokens": 50},
    {"row_tokens": 64, "pack_tokens": 80, "max_tokens": 400},
]
# The checks of types within our code pick the items of a list at random.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")


@functools.cache
def exact_setup(name, family="llama"):
    """Its gradients are taken, its weights stay."""
    return Setup(name, family, is_exact=True)


def assert_same(actual, expected):
    """To 1e-10 of the largest number."""
    assert expected.dtype == torch.float64
    assert expected.any()
    assert (actual - expected).abs().max() <= 1e-10 * expected.abs().max()


def check_layouts(name, rows, layouts, family="llama"):
    chance, setup = random.Random(len(name) + len(rows)), exact_setup(name, family)
    expected, metrics = setup.gradient([list(range(len(rows)))], rows, row_tokens=0)
    for limits in layouts:
        # Both the order in the file and that in which a step visits it.
        file, order = chance.sample(rows, len(rows)), chance.sample(range(len(rows)), len(rows))
        if KIND[name] == "kto":  # each row is paired with the next: what is visited keeps its order
            order = [file.index(row) for row in rows]
        actual, same = setup.gradient([order], file, **limits)
        assert_same(actual, expected)
        # Rewards, and what is logged of outcomes, are float32 whatever the models are.
        tolerance = 1e-6 if name in (*RL, "outcome") else 1e-9
        assert same == pytest.approx(metrics, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("name", KIND)
def test_order_and_micro_batches_shared_rows_and_packing_change_nothing(name):
    check_layouts(name, ALL, LAYOUTS[:3])


@pytest.mark.slow
@pytest.mark.parametrize("name", KIND)
def test_they_change_nothing_for_any_rows(name):
    chance = random.Random(name)
    for _ in range(4):
        check_layouts(name, chance.sample(ALL, chance.randint(3, NUM_ROWS)), LAYOUTS)


@pytest.mark.slow
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "llama"])
@pytest.mark.parametrize("name", ONE_EACH)
def test_they_change_nothing_in_another_architecture(name, family):
    check_layouts(name, ALL, LAYOUTS[1:2], family)


@pytest.mark.parametrize("name", ONE_EACH)
def test_the_passes_that_are_counted_are_those_that_the_models_take(name):
    """A prompt with its completions a micro-batch: no row has padding, each position is a token."""
    seen: Counter[str] = Counter()
    changes = {"num_epochs": 2} if name in RL else {}
    setup = Setup(name, is_exact=True, **changes)
    for role, model in setup.models.items():

        def count(_, args, kwargs, role="reward" if role == "process" else role):
            if kwargs.get("past_key_values") is None:  # those of sampling have a cache
                kind = "trained" if torch.is_grad_enabled() else "read"
                seen[f"work/{role}/{kind}/positions"] += kwargs["input_ids"].numel()

        model.base_model.register_forward_pre_hook(count, with_kwargs=True)
    step, _ = setup.take_updates(max_tokens=1, row_tokens=64, pack_tokens=0)
    counted = {
        key: value
        for key, value in step.metrics.items()
        if key.startswith("work/") and key.endswith("positions") and value
    }
    if name in RL:
        # Each prompt is read once, no completion's last token, and what an environment says.
        ids = [
            len(r.episode["token_ids"]) if r.episode else len(r.completion_ids) for r in step.rows
        ]
        prompts = {
            row.id: row.episode["prompt_ids"] if row.episode else prompt.prompt_ids
            for row in step.rows
            for prompt in every_loop.make_prompts(NUM_ROWS)
            if prompt.id == row.id
        }
        sampled = sum(ids) - len(ids) + sum(map(len, prompts.values()))
        assert counted.pop("work/policy/sampled/positions") == sampled
        outputs = sum(len(row.completion_ids) for row in step.rows)
        assert step.metrics["work/policy/sampled/outputs"] == outputs
    # The reference of pairs is read before the first step, and is not one of its passes.
    seen.pop("work/reference/read/positions" if name in ("dpo", "kto") else "", None)
    assert dict(seen) == counted
