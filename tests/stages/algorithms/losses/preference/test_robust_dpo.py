import math

import pytest
import torch

from stages.algorithms.losses.preference.dpo import dpo_loss
from stages.algorithms.losses.preference.robust_dpo import robust_dpo_loss

ZEROS = torch.zeros(3, dtype=torch.float64)
H = torch.tensor([2.0, -2.0, 0.0], dtype=torch.float64)


def robust(h, flip_rate):
    return robust_dpo_loss(h, ZEROS, ZEROS, ZEROS, beta=0.5, flip_rate=flip_rate)


def test_hand_worked_numbers():
    # Margin 1, e = 1/4: (3/4 l(1) - 1/4 l(-1)) / (1/2) = 1.5 l(1) - 0.5 l(-1), l(-1) = l(1) + 1.
    losses, margins = robust(H, 0.25)
    right = math.log(1 + math.exp(-1))
    assert margins.tolist() == [1.0, -1.0, 0.0]
    assert losses.tolist() == pytest.approx([right - 0.5, right + 1.5, math.log(2)])


def test_without_flips_it_is_dpo():
    expected, _ = dpo_loss(H, ZEROS, ZEROS, ZEROS, beta=0.5, label_smoothing=0.0)
    torch.testing.assert_close(robust(H, 0.0)[0], expected)


def test_its_mean_over_flipped_labels_is_the_loss_of_the_true_ones():
    as_labelled, swapped = robust(H, 0.3)[0], robust(-H, 0.3)[0]
    true_margins = 0.5 * H
    expected = torch.log1p(torch.exp(-true_margins))
    torch.testing.assert_close(0.7 * as_labelled + 0.3 * swapped, expected)


@pytest.mark.parametrize("flip_rate", [-0.1, 0.5, 0.9])
def test_a_rate_at_which_labels_say_nothing_is_refused(flip_rate):
    with pytest.raises(ValueError, match=r"expected a flip_rate from 0 to below 0\.5, found"):
        robust(H, flip_rate)
