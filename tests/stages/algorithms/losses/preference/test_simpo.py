import math

import pytest
import torch

from stages.algorithms.losses.preference.cpo import cpo_loss
from stages.algorithms.losses.preference.simpo import simpo_loss

CHOSEN = torch.tensor([-4.0, -9.0], dtype=torch.float64)
REJECTED = torch.tensor([-6.0, -3.0], dtype=torch.float64)
LENGTHS = torch.tensor([4, 3]), torch.tensor([2, 3])


def test_hand_worked_numbers():
    # Means -1 and -3: margin 2 (2) = 4, less gamma 3 is 1. Means -3 and -1: -4 - 3 = -7.
    losses, margins = simpo_loss(CHOSEN, REJECTED, *LENGTHS, beta=2.0, gamma=3.0)
    assert margins.tolist() == [4.0, -4.0]
    assert losses.tolist() == pytest.approx([math.log(1 + math.exp(-1)), math.log(1 + math.exp(7))])


def test_for_single_tokens_and_no_gamma_it_is_cpo_without_its_likelihood_term():
    ones = torch.ones(2, dtype=torch.long)
    for found, expected in zip(
        simpo_loss(CHOSEN, REJECTED, ones, ones, beta=0.3, gamma=0.0),
        cpo_loss(CHOSEN, REJECTED, ones, beta=0.3, alpha=0.0),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


def test_a_longer_completion_of_the_same_tokens_is_worth_the_same():
    once, _ = simpo_loss(CHOSEN, REJECTED, *LENGTHS, beta=2.0, gamma=1.0)
    longer, _ = simpo_loss(3 * CHOSEN, REJECTED, 3 * LENGTHS[0], LENGTHS[1], beta=2.0, gamma=1.0)
    torch.testing.assert_close(once, longer)
