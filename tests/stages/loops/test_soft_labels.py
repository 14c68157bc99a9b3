import math

import pytest
import torch

from stages.loops.choices.pair_logprobs import PairLogprobs
from stages.loops.choices.preference_loss import HingeLoss, OrpoLoss, SigmoidLoss
from stages.loops.soft_labels import expected_loss

DPO = SigmoidLoss(kind="sigmoid", beta=1.0, label_smoothing=0.0)


def pairs(margin: float, chosen: float = -2.0) -> PairLogprobs:
    """One pair whose log-ratio margin is `margin`."""
    one = torch.tensor([chosen], dtype=torch.float64)
    return PairLogprobs(
        chosen=(one + margin).requires_grad_(),
        rejected=one.clone().requires_grad_(),
        chosen_ref=one,
        rejected_ref=one,
        chosen_lengths=torch.tensor([3]),
        rejected_lengths=torch.tensor([3]),
    )


def label(probability: float) -> torch.Tensor:
    return torch.tensor([probability], dtype=torch.float64)


def test_by_hand():
    # sigmoid(log 3) is 3/4: 0.6 * -log 0.75 + 0.4 * -log 0.25
    losses, margins = expected_loss(DPO, pairs(math.log(3)), label(0.6))
    assert losses.item() == pytest.approx(0.6 * 0.2876821 + 0.4 * 1.3862944, abs=1e-6)
    assert margins.item() == pytest.approx(math.log(3))


def test_the_gradient_vanishes_where_the_model_says_what_the_label_says():
    one = pairs(math.log(3))
    expected_loss(DPO, one, label(0.75))[0].sum().backward()
    assert one.chosen.grad is not None
    assert one.chosen.grad.item() == pytest.approx(0.0, abs=1e-12)


def test_it_is_conservative_dpo_with_a_smoothing_for_each_pair():
    smoothed = SigmoidLoss(kind="sigmoid", beta=1.0, label_smoothing=0.2)
    found, _ = expected_loss(DPO, pairs(0.7), label(0.8))
    torch.testing.assert_close(found, smoothed(pairs(0.7))[0])


@pytest.mark.parametrize("loss", [DPO, HingeLoss(kind="hinge", beta=0.5)], ids=["dpo", "hinge"])
def test_a_label_and_its_complement_are_the_pair_turned_round(loss):
    there, _ = expected_loss(loss, pairs(0.7), label(0.3))
    forth, _ = expected_loss(loss, pairs(-0.7), label(0.7))
    torch.testing.assert_close(there, forth)


def test_a_sure_pair_among_others_costs_what_it_costs_alone():
    """ORPO's odds of a completion of probability 1 are infinite the wrong way round."""
    loss = OrpoLoss(kind="orpo", lam=0.1)
    alone, _ = loss(pairs(-0.5))
    both = PairLogprobs(
        **{
            name: torch.cat([getattr(pairs(-0.5), name), getattr(pairs(0.2), name)])
            for name in PairLogprobs.__slots__
        }
    )
    found, _ = expected_loss(loss, both, torch.tensor([1.0, 0.6], dtype=torch.float64))
    assert found[0].item() == alone.item()
