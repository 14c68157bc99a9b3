import math

import pytest
import torch

from stages.algorithms.losses.step_labels import soft_step_label_loss, step_label_loss

# P(right) = 3/4, 1/5, 1/2.
SCORES = torch.tensor(
    [[1.0, 1 + math.log(3)], [math.log(4), 0.0], [-7.0, -7.0]], dtype=torch.float64
)


def random_scores(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_hand_worked_numbers():
    assert step_label_loss(SCORES, torch.tensor([1, 1, 1])).tolist() == pytest.approx(
        [-math.log(0.75), -math.log(0.2), math.log(2)]
    )
    assert step_label_loss(SCORES, torch.tensor([0, 0, 0])).tolist() == pytest.approx(
        [-math.log(0.25), -math.log(0.8), math.log(2)]
    )


def test_hand_worked_numbers_of_soft_labels():
    probabilities = torch.tensor([0.75, 0.6, 0.3], dtype=torch.float64)
    assert soft_step_label_loss(SCORES, probabilities).tolist() == pytest.approx(
        [
            -0.75 * math.log(0.75) - 0.25 * math.log(0.25),
            -0.6 * math.log(0.2) - 0.4 * math.log(0.8),
            math.log(2),
        ]
    )


def test_a_certain_soft_label_is_a_hard_one():
    scores = random_scores(20, 2)
    labels = torch.arange(20) % 2
    torch.testing.assert_close(
        soft_step_label_loss(scores, labels.double()), step_label_loss(scores, labels)
    )


def test_scores_moved_together_change_nothing():
    scores, labels = random_scores(4, 2), torch.tensor([0, 1, 1, 0])
    torch.testing.assert_close(step_label_loss(scores + 5, labels), step_label_loss(scores, labels))


def test_a_huge_margin_stays_finite():
    scores = torch.tensor([[1e4, -1e4]])
    assert step_label_loss(scores, torch.tensor([0])).item() == 0
    assert step_label_loss(scores, torch.tensor([1])).item() == pytest.approx(2e4)
    assert soft_step_label_loss(scores, torch.tensor([0.0])).item() == 0


def test_gradients_are_those_of_finite_differences():
    scores = random_scores(5, 2).requires_grad_()
    labels = torch.tensor([0, 1, 1, 0, 1])
    probabilities = torch.tensor([0.0, 0.3, 0.5, 0.8, 1.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda s: step_label_loss(s, labels), scores)
    assert torch.autograd.gradcheck(lambda s: soft_step_label_loss(s, probabilities), scores)


def test_a_soft_label_gets_no_gradient_and_vanishes_where_it_is_met():
    scores = SCORES.clone().requires_grad_()
    probabilities = torch.tensor([0.75, 0.2, 0.5], dtype=torch.float64, requires_grad=True)
    soft_step_label_loss(scores, probabilities).sum().backward()
    assert probabilities.grad is None
    torch.testing.assert_close(scores.grad, torch.zeros_like(SCORES))


def test_without_a_labelled_step_there_is_no_loss():
    with pytest.raises(ValueError, match="at least one labelled step"):
        step_label_loss(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match="at least one labelled step"):
        soft_step_label_loss(torch.zeros(0, 2), torch.zeros(0))


@pytest.mark.parametrize("label", [-100, 2])
def test_a_label_that_is_none_is_an_error_and_no_loss_of_0(label):
    with pytest.raises(RuntimeError, match="out of bounds"):
        step_label_loss(torch.zeros(2, 2), torch.tensor([1, label]))
