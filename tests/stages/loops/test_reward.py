import dataclasses
import math

import pytest
import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute
from tiny_rollouts import OPTIM, assert_same_gradients, make_pairs, watch_gradients

from stages.loops import epochs, reward
from stages.loops.preference import make_pair_groups
from stages.loops.reward import RewardConfig
from stages.models import scalar_head
from stages.models.scalar_head import ScalarHead

PAIRS = make_pairs(8)
ONE_STEP = [list(range(8))]


def load(family="llama", head=0.0):
    model = scalar_head.init_scalar_model(checkpoint(family), PAD, compute(), CPU)
    generator = torch.Generator().manual_seed(1)
    torch.nn.init.normal_(model.score.weight, std=head, generator=generator)
    return model


def train(model, schedule, settings=None, *, centring=0.0, margin=0.0, pairs=PAIRS):
    config = RewardConfig(num_epochs=1, batch_size=8, centring=centring, margin=margin, optim=OPTIM)
    return list(
        reward.train(ScalarHead(model, settings or compute(), PAD), pairs, schedule, config)
    )


def score_pairs(model, pairs, settings, pad_id):
    groups = make_pair_groups(pairs, range(len(pairs)))
    return reward.score(ScalarHead(model, settings, pad_id), groups).view(-1, 2)


def test_from_a_zero_head_the_loss_is_log_2_whatever_the_label():
    for probability in (1.0, 0.7):
        (step,) = train(load(), ONE_STEP, pairs=make_pairs(8, probability))
        assert step.metrics["loss/bradley_terry"] == pytest.approx(math.log(2))


def test_the_loss_is_that_of_the_scores_with_the_centring_term():
    model = load(head=0.5)
    scores = score_pairs(model, PAIRS, compute(), PAD)
    margins, sums = scores[:, 0] - scores[:, 1], scores.sum(1)
    expected = (torch.log1p(torch.exp(-margins)) + 0.1 * sums**2).mean().item()
    (step,) = train(model, ONE_STEP, centring=0.1)
    assert step.metrics["loss/bradley_terry"] == pytest.approx(expected, rel=1e-4)
    assert step.metrics["pairs/margin"] == pytest.approx(margins.mean().item(), abs=1e-4)
    assert step.metrics["pairs/accuracy"] == (margins > 0).float().mean().item()


def test_the_margin_is_in_the_loss():
    model = load(head=0.5)
    scores = score_pairs(model, PAIRS, compute(), PAD)
    expected = torch.log1p(torch.exp(3.0 - (scores[:, 0] - scores[:, 1]))).mean().item()
    (step,) = train(model, ONE_STEP, margin=3.0)
    assert step.metrics["loss/bradley_terry"] == pytest.approx(expected, rel=1e-4)


def flipped(pairs):
    """The same labels said the other way round."""
    return [
        dataclasses.replace(
            pair,
            chosen_ids=pair.rejected_ids,
            rejected_ids=pair.chosen_ids,
            probability=1 - pair.probability,
        )
        for pair in pairs
    ]


@pytest.mark.parametrize("probability", [1.0, 0.75])
def test_a_label_below_a_half_is_the_pair_the_other_way_round(probability, monkeypatch):
    gradients, pairs, result = watch_gradients(monkeypatch), make_pairs(8, probability), []
    for rows in (pairs, flipped(pairs)):
        (step,) = train(load(head=0.5), ONE_STEP, centring=0.1, margin=1.0, pairs=rows)
        result.append(step.metrics)
    for name in ("loss/bradley_terry", "pairs/accuracy", "pairs/margin"):
        assert result[1][name] == pytest.approx(result[0][name], rel=1e-5), name
    assert_same_gradients(*gradients)


def test_a_soft_label_is_learned_as_a_probability():
    model = load()
    pairs = make_pairs(8, probability=0.8)
    train(model, epochs.batches(8, 60, 8, seed=0), pairs=pairs)
    scores = score_pairs(model, pairs, compute(), PAD)
    learned = torch.sigmoid(scores[:, 0] - scores[:, 1])
    torch.testing.assert_close(learned, torch.full((8,), 0.8), rtol=0, atol=0.1)


def test_even_tokens_are_told_from_odd_ones_in_pairs_never_seen():
    pairs = make_pairs(48)
    model = load()
    train(model, epochs.batches(32, 15, 8, seed=0), pairs=pairs[:32])
    scores = score_pairs(model, pairs[32:], compute(), PAD)
    assert (scores[:, 0] > scores[:, 1]).float().mean().item() >= 0.9
