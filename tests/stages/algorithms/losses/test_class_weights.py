import pytest
import torch

from stages.algorithms.losses.class_weights import balanced_weights
from stages.algorithms.losses.step_labels import soft_step_label_loss


def test_both_labels_have_the_same_total_and_the_mean_weight_is_1():
    assert balanced_weights(torch.tensor([1.0, 1.0, 1.0, 0.0])) == (2.0, pytest.approx(2 / 3))
    assert balanced_weights(torch.tensor([1.0, 0.0])) == (1.0, 1.0)


def test_a_soft_label_counts_as_a_share_of_each():
    # Right 0.25 + 0.75 + 1 = 2 of 4.
    assert balanced_weights(torch.tensor([0.25, 0.75, 1.0, 0.0])) == (1.0, 1.0)
    assert balanced_weights(torch.tensor([0.25, 0.25])) == (pytest.approx(2 / 3), 2.0)


@pytest.mark.parametrize("labels", [[1.0, 1.0], [0.0]])
def test_a_label_that_never_occurs_is_refused(labels):
    with pytest.raises(ValueError, match="class_balance: none"):
        balanced_weights(torch.tensor(labels))


def test_a_constant_score_of_one_half_is_the_best_under_balanced_weights():
    labels = torch.tensor([1.0, 1.0, 1.0, 0.0])
    weights = balanced_weights(labels)
    logit = torch.zeros(1, requires_grad=True)
    scores = torch.stack([torch.zeros(4), logit.expand(4)], 1)
    soft_step_label_loss(scores, labels, weights=weights).sum().backward()
    assert logit.grad is not None
    assert logit.grad.item() == pytest.approx(0.0, abs=1e-6)
