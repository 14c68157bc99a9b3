import math

import pytest
import torch

from stages.algorithms.losses.outcome_label import outcome_label_loss


def test_worked_by_hand():
    # -log(3/4) of a right and -log(1/4) of a wrong completion, both at P(right) = 3/4.
    scores = torch.full((2,), math.log(3.0))
    loss = outcome_label_loss(scores, torch.tensor([1.0, 0.0]))
    assert loss.tolist() == pytest.approx([math.log(4 / 3), math.log(4)])


def test_a_soft_label_is_a_mixture():
    loss = outcome_label_loss(torch.tensor([1.5]), torch.tensor([0.3]))
    hard = outcome_label_loss(torch.tensor([1.5, 1.5]), torch.tensor([1.0, 0.0]))
    assert loss.item() == pytest.approx(0.3 * hard[0].item() + 0.7 * hard[1].item())


def test_its_gradient_is_the_error_of_the_probability():
    scores = torch.tensor([2.0, -1.0, 0.0], requires_grad=True)
    labels = torch.tensor([1.0, 0.0, 0.5])
    outcome_label_loss(scores, labels).sum().backward()
    torch.testing.assert_close(scores.grad, torch.sigmoid(scores.detach()) - labels)


def test_extreme_scores_are_finite():
    loss = outcome_label_loss(torch.tensor([1e4, -1e4]), torch.tensor([0.0, 1.0]))
    assert loss.tolist() == [1e4, 1e4]


def test_swapping_right_and_wrong_is_turning_the_score():
    scores, labels = torch.tensor([0.7, -2.0]), torch.tensor([1.0, 0.25])
    torch.testing.assert_close(
        outcome_label_loss(scores, labels), outcome_label_loss(-scores, 1 - labels)
    )
