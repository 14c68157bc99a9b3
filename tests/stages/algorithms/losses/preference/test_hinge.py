import torch

from stages.algorithms.losses.preference.hinge import hinge_loss

ZEROS = torch.zeros(4, dtype=torch.float64)


def test_hand_worked_numbers_and_no_gradient_from_margin_one_on():
    # beta 0.5 times h = 4, 1, 0, -4.
    chosen = torch.tensor([4.0, 1.0, 0.0, -4.0], dtype=torch.float64, requires_grad=True)
    losses, margins = hinge_loss(chosen, ZEROS, ZEROS, ZEROS, beta=0.5)
    assert margins.tolist() == [2.0, 0.5, 0.0, -2.0]
    assert losses.tolist() == [0.0, 0.5, 1.0, 3.0]
    losses.sum().backward()
    assert chosen.grad.tolist() == [0.0, -0.5, -0.5, -0.5]


def test_only_what_was_gained_over_the_reference_counts():
    policy = torch.tensor([-3.0, -2.0, -8.0, -1.0], dtype=torch.float64)
    losses, margins = hinge_loss(policy, policy - 5, policy, policy - 5, beta=0.5)
    assert margins.tolist() == [0.0] * 4
    assert losses.tolist() == [1.0] * 4
