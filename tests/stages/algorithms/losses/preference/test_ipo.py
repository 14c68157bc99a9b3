import pytest
import torch

from stages.algorithms.losses.preference.ipo import ipo_mean_loss, ipo_sum_loss

CHOSEN = torch.tensor([-4.0, -9.0], dtype=torch.float64)
REJECTED = torch.tensor([-6.0, -7.0], dtype=torch.float64)
CHOSEN_REF = torch.tensor([-5.0, -8.0], dtype=torch.float64)
REJECTED_REF = torch.tensor([-5.0, -8.0], dtype=torch.float64)
FOUR = (CHOSEN, REJECTED, CHOSEN_REF, REJECTED_REF)


def test_hand_worked_sums():
    # h = (-4 + 5) - (-6 + 5) = 2 and -2; beta 0.25 wants h = 2.
    losses, margins = ipo_sum_loss(*FOUR, beta=0.25)
    assert losses.tolist() == [0.0, 16.0]
    assert margins.tolist() == [0.5, -0.5]


def test_hand_worked_means():
    # h = 1/2 - (-1)/4 = 0.75 and -1/2 - 1/1 = -1.5; beta 0.5 wants 1.
    lengths = torch.tensor([2, 2]), torch.tensor([4, 1])
    losses, margins = ipo_mean_loss(*FOUR, *lengths, beta=0.5)
    assert losses.tolist() == pytest.approx([0.0625, 6.25])
    assert margins.tolist() == pytest.approx([0.375, -0.75])


def test_both_are_the_same_for_single_tokens():
    ones = torch.ones(2, dtype=torch.long)
    for found, expected in zip(
        ipo_mean_loss(*FOUR, ones, ones, beta=0.3), ipo_sum_loss(*FOUR, beta=0.3), strict=True
    ):
        assert torch.equal(found, expected)


def test_the_mean_does_not_change_when_a_completion_is_repeated_token_by_token():
    lengths = torch.tensor([3, 5]), torch.tensor([2, 7])
    once, _ = ipo_mean_loss(*FOUR, *lengths, beta=0.3)
    twice, _ = ipo_mean_loss(
        *(2 * values for values in FOUR), 2 * lengths[0], 2 * lengths[1], beta=0.3
    )
    torch.testing.assert_close(once, twice)


def test_a_margin_that_is_too_large_is_pulled_back():
    chosen = (CHOSEN + 10).requires_grad_()
    ipo_sum_loss(chosen, *FOUR[1:], beta=0.25)[0].sum().backward()
    # h = 12 and 8, wanted 2: gradient 2 (h - 2).
    assert chosen.grad.tolist() == pytest.approx([20.0, 12.0])
