import math

import pytest
import torch
from tiny_checkpoints import FAMILIES, PAD, compute, load, plain_logprobs
from tiny_rollouts import OPTIM, assert_same_gradients, make_pairs, watch_gradients, weights

from stages.loops import epochs, preference
from stages.loops.preference import PreferenceConfig

PAIRS = make_pairs(8)
ONE_STEP = [list(range(8))]


def train(model, schedule, settings=None):
    settings = settings or compute()
    reference = preference.reference_logprobs(model, PAIRS, settings, PAD)
    config = PreferenceConfig(
        beta=0.1, num_epochs=1, batch_size=8, optim=OPTIM | {"learning_rate": 3e-3}
    )
    steps = preference.train(model, PAIRS, reference, schedule, config, settings, PAD)
    return list(steps)


@pytest.mark.parametrize("family", FAMILIES)
def test_reference_log_probs_are_sums_over_each_completion(family):
    model = load(family)
    found = preference.reference_logprobs(model, PAIRS, compute(), PAD)
    for row, pair in zip(found, PAIRS, strict=True):
        for value, ids in zip(row, (pair.chosen_ids, pair.rejected_ids), strict=True):
            expected = plain_logprobs(model, pair.prompt_ids, ids).sum()
            assert value.item() == pytest.approx(expected.item(), abs=1e-3)
    assert not found.requires_grad


def test_the_first_step_starts_at_the_reference_with_loss_log_2():
    (step,) = train(load("llama"), ONE_STEP)
    assert step.metrics["loss/dpo"] == pytest.approx(math.log(2), abs=1e-5)
    assert step.metrics["margin/mean"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_does_not_depend_on_micro_batches_rows_or_order(family, monkeypatch):
    seen = watch_gradients(monkeypatch, preference)
    for row_tokens, pack_tokens in ((64, 0), (0, 0), (14, 0), (64, 40), (0, 40)):
        for max_tokens in (4096, 30):
            changes = {"row_tokens": row_tokens, "pack_tokens": pack_tokens}
            settings = compute(max_tokens=max_tokens, **changes)
            train(load(family), ONE_STEP, settings)
    train(load(family), [[3, 1, 7, 0, 5, 2, 6, 4]])
    for found in seen[1:]:
        assert_same_gradients(found, seen[0])


def test_the_margin_of_every_pair_becomes_positive():
    model = load("llama")
    steps = train(model, epochs.batches(8, 30, 8, seed=0))
    assert steps[-1].metrics["margin/accuracy"] == 1.0
    assert steps[-1].metrics["margin/mean"] > 1.0
    assert steps[-1].metrics["loss/dpo"] < 0.3
    assert steps[-1].metrics["logprobs/chosen"] > steps[-1].metrics["logprobs/rejected"]


def test_the_same_training_twice_gives_the_same_bits():
    found = []
    for _ in range(2):
        model = load("llama")
        train(model, epochs.batches(8, 2, 4, seed=0))
        found.append(weights(model))
    assert torch.equal(found[0], found[1])
