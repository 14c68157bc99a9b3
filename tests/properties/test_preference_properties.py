"""The gradient of a step of SFT, of the reward model and of preferences, in float64.

It does not depend on micro-batches, on what shares a row, nor on the order of rows. The
preference losses are those of presets.yaml; KTO pairs neighbours, so its order is kept.
"""

from dataclasses import replace
from unittest import mock

import presets
import pytest
import torch
from exact_models import assert_same, language_model, scalar_model, take_gradient
from hypothesis import given
from hypothesis import strategies as st
from random_grids import examples
from tiny_checkpoints import PAD, compute
from tiny_rollouts import OPTIM, make_demonstrations, make_pairs

from stages.loops import kto, preference, reward, sft
from stages.loops.kto import KtoReference, judged_rows
from stages.loops.preference import KNOBS, PreferenceConfig
from stages.loops.reward import RewardConfig
from stages.loops.sft import SftConfig
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead

SIZES = {"num_epochs": 1, "batch_size": 6, "optim": OPTIM}
KEPT = SIZES | {"num_checkpoints": 0}
DEMONSTRATIONS = make_demonstrations(6)
# Labels that differ: each must follow its pair.
PAIRS = [replace(pair, probability=0.5 + i / 12) for i, pair in enumerate(make_pairs(6))]
LANGUAGE, SCALAR = language_model(), scalar_model()
REFERENCE = -10 * torch.rand(6, 2, generator=torch.Generator().manual_seed(3))


def sft_steps(rows, order, settings):
    rows = [DEMONSTRATIONS[i] for i in rows]
    config = SftConfig(**SIZES)
    return LANGUAGE, sft.train(Policy(LANGUAGE, settings, PAD), rows, [order], config)


def reward_steps(rows, order, settings):
    pairs, config = [PAIRS[i] for i in rows], RewardConfig(**SIZES, centring=0.1, margin=0.0)
    return SCALAR, reward.train(ScalarHead(SCALAR, settings, PAD), pairs, [order], config)


LOSSES = {name: presets.loss(name) for name in presets.PREFERENCE}
PAIR_LOSSES = {name: loss for name, loss in LOSSES.items() if loss.kind != "kto"}


def preference_steps(loss):
    def steps(rows, order, settings):
        pairs, config, ref = [PAIRS[i] for i in rows], PreferenceConfig(**KEPT), REFERENCE[rows]
        return LANGUAGE, preference.train(
            Policy(LANGUAGE, settings, PAD), pairs, ref, [order], loss, config
        )

    return steps


LOOPS = {"sft": sft_steps, "reward": reward_steps}
LOOPS |= {name: preference_steps(loss) for name, loss in PAIR_LOSSES.items()}


def gradient(name, rows, order, **limits):
    """Of one step over rows of the table, which lie in this order in the file."""
    with mock.patch("stages.loops.state.step_optimizer", return_value={}):
        model, steps = LOOPS[name](rows, order, compute(**limits))
        (step,) = steps
    return take_gradient(model), {k: v for k, v in step.metrics.items() if "padding" not in k}


def test_no_preference_loss_is_left_out_here():
    assert {loss.kind for loss in LOSSES.values()} == KNOBS.keys()


@pytest.mark.parametrize("name", LOOPS)
@examples(12)
@given(
    data=st.data(),
    row_tokens=st.sampled_from([0, 8, 14, 64]),
    max_tokens=st.sampled_from([1, 20, 50, 400]),
)
def test_micro_batches_shared_prompts_and_order_change_nothing(name, data, row_tokens, max_tokens):
    rows = data.draw(st.lists(st.integers(0, 5), min_size=1, unique=True), label="rows")
    numbers = list(range(len(rows)))
    expected, metrics = gradient(name, rows, numbers, row_tokens=0, max_tokens=4096)
    # Both what the file's order is and in which order a step visits it.
    shuffled = data.draw(st.permutations(rows), label="file")
    order = data.draw(st.permutations(numbers), label="order")
    limits = {"row_tokens": row_tokens, "max_tokens": max_tokens}
    found, same = gradient(name, shuffled, order, **limits)
    assert_same(found, expected)
    assert learned(same) == pytest.approx(learned(metrics), rel=1e-9, abs=1e-9)


def learned(metrics):
    """What a step found out, without what it took: a shared prompt is read once."""
    return {name: value for name, value in metrics.items() if not name.startswith("work/")}


@pytest.mark.parametrize("name", LOOPS)
def test_a_step_is_the_mean_over_its_rows(name):
    def weight(row):
        return len(DEMONSTRATIONS[row].completion_ids) if name == "sft" else 1

    parts = [weight(row) * gradient(name, [row], [0])[0] for row in range(6)]
    expected = torch.stack(parts).sum(0) / sum(map(weight, range(6)))
    assert_same(gradient(name, list(range(6)), list(range(6)))[0], expected)


def kto_gradient(loss, rows, **limits):
    judged = judged_rows(make_pairs(6))
    mismatched = torch.full((len(kto.mismatched_groups(judged, rows)),), -9.0).double()
    ref = KtoReference(matched=REFERENCE.double().flatten(), mismatched=[mismatched])
    config = PreferenceConfig(**KEPT)
    before = torch.get_default_dtype()
    # The loop collects what it logs in the default precision.
    torch.set_default_dtype(torch.float64)
    try:
        with mock.patch("stages.loops.state.step_optimizer", return_value={}):
            list(
                kto.train(
                    Policy(LANGUAGE, compute(**limits), PAD), judged, ref, [rows], loss, config
                )
            )
    finally:
        torch.set_default_dtype(before)
    return take_gradient(LANGUAGE)


@examples(20)
@given(
    rows=st.lists(st.integers(0, 11), min_size=1, unique=True),
    row_tokens=st.sampled_from([0, 8, 14, 64]),
    max_tokens=st.sampled_from([1, 20, 50, 400]),
)
def test_nor_do_micro_batches_change_kto_whose_reference_point_is_the_steps(
    rows, row_tokens, max_tokens
):
    expected = kto_gradient(LOSSES["kto"], rows, row_tokens=0, max_tokens=4096)
    found = kto_gradient(LOSSES["kto"], rows, row_tokens=row_tokens, max_tokens=max_tokens)
    assert_same(found, expected)
