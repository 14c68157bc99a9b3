import pytest
import torch

from stages.algorithms.advantages.returns_to_go import returns_to_go
from stages.algorithms.gae import gae

REWARDS = torch.tensor([[1.0, 0.0, 2.0], [4.0, 3.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_hand_worked_numbers():
    # Row 0, gamma 0.5: 2; 0 + 1; 1 + 0.5. Row 1: 3; 4 + 1.5.
    assert returns_to_go(REWARDS, MASK, gamma=0.5).tolist() == [[1.5, 1.0, 2.0], [5.5, 3.0, 0.0]]


def test_an_uncounted_token_between_others_is_no_step():
    mask = torch.tensor([[True, False, True], [False, True, True]])
    rewards = torch.where(mask, REWARDS, torch.nan)
    # Row 0: 2; 1 + 0.5 * 2, one step later. Row 1: 9; 3 + 0.5 * 9.
    assert returns_to_go(rewards, mask, gamma=0.5).tolist() == [[2.0, 0.0, 2.0], [0.0, 7.5, 9.0]]


def test_it_is_the_advantage_of_a_value_that_is_always_zero():
    advantages, _ = gae(REWARDS, torch.zeros_like(REWARDS), MASK, gamma=0.9, lam=1.0)
    torch.testing.assert_close(returns_to_go(REWARDS, MASK, gamma=0.9), advantages)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_nothing_counted_gives_zero(gamma):
    rewards = torch.full_like(REWARDS, torch.nan)
    assert not returns_to_go(rewards, torch.zeros_like(MASK), gamma=gamma).any()


def test_no_gradient_flows_through():
    rewards = REWARDS.clone().requires_grad_()
    assert not returns_to_go(rewards, MASK, gamma=1.0).requires_grad
