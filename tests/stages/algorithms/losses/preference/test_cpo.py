import math

import pytest
import torch

from stages.algorithms.losses.preference.cpo import cpo_loss
from stages.algorithms.losses.preference.dpo import dpo_loss

CHOSEN = torch.tensor([-4.0, -9.0], dtype=torch.float64)
REJECTED = torch.tensor([-6.0, -7.0], dtype=torch.float64)
LENGTHS = torch.tensor([2, 3])


def test_hand_worked_numbers():
    # Margins 0.5 (2) = 1 and -1; likelihood terms 4 / 2 = 2 and 9 / 3 = 3, at weight 0.1.
    losses, margins = cpo_loss(CHOSEN, REJECTED, LENGTHS, beta=0.5, alpha=0.1)
    assert margins.tolist() == [1.0, -1.0]
    assert losses.tolist() == pytest.approx(
        [math.log(1 + math.exp(-1)) + 0.2, math.log(1 + math.e) + 0.3]
    )


def test_without_the_likelihood_term_it_is_dpo_with_a_uniform_reference():
    uniform = torch.full((2,), -3.0, dtype=torch.float64)
    expected, _ = dpo_loss(CHOSEN, REJECTED, uniform, uniform, beta=0.3, label_smoothing=0.0)
    found, _ = cpo_loss(CHOSEN, REJECTED, LENGTHS, beta=0.3, alpha=0.0)
    torch.testing.assert_close(found, expected)
