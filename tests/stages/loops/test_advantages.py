"""Advantages of rewards that hardly differ, and what GAE says of a value model.

Their formulas, in whole steps: `test_definitions`.
"""

import math
import random

import pytest
import torch
from tiny_rollouts import make_rollouts

from stages.loops import rl
from stages.loops.method import HYPERPARAMETERS, OWN, Method
from stages.rewards.completion_rewards import CompletionRewards

METHODS = {
    "group_zscore": {"ddof": 1, "eps": 1e-4},
    "group_centred": {},
    "mean_normalised": {"eps": 0.01},
    "batch_std": {"ddof": 1, "eps": 1e-4},
    "leave_one_out": {},
    "greedy_baseline": {},
    "batch_whitened": {"gamma": 1.0, "whiten_eps": 1e-8},
    "step_zscore": {"step_weight": 2.0, "ddof": 1, "eps": 1e-4},
}
"""Advantage -> numbers; those of models, and yours, are in `test_definitions` alone."""


def make_method(name):
    return Method(advantage=name, **METHODS[name])


def test_every_advantage_of_rewards_is_a_row():
    assert METHODS.keys() | {"gae", "teacher", OWN} == {*HYPERPARAMETERS["advantage"]}


def group_of(totals, steps=None):
    ends = None if steps is None else steps != 0
    return CompletionRewards(totals=totals, step_rewards=steps, step_ends=ends)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e8, 1e15])
def test_rewards_far_from_0_that_hardly_differ_have_bounded_scores(name, scale):
    """In float32, where 1e8 and its neighbour are 8 apart; groups of one among them."""
    chance, method = random.Random(1), make_method(name)
    for _ in range(6):
        groups = [chance.randint(0, 3) for _ in range(chance.randint(1, 12))]
        base = torch.full((len(groups),), scale)
        above = torch.tensor([chance.random() < 0.5 for _ in groups])
        rewards = torch.where(above, base.nextafter(2 * base), base)
        steps = rewards[:, None] * torch.tensor([0.0, 1.0])
        by_step = method.advantage == "step_zscore"
        result = rl.compute_reward_advantages(
            method,
            group_of(rewards.tolist(), steps if by_step else None),
            torch.zeros(len(groups), 2),
            make_rollouts([2] * len(groups), groups),
            torch.ones(len(groups), dtype=torch.bool),
            base,
        )
        assert result.isfinite().all()
        if "zscore" in name or name.startswith("batch"):
            # No score is further than sqrt(n) standard deviations from the mean of n.
            assert result.abs().max() <= (1 + method.step_weight) * math.sqrt(2 * result.numel())
        if not above.any():
            assert (result == 0).all()


def test_explained_variance_of_a_perfect_a_constant_and_a_needless_value_model():
    returns, ones = torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 5.0]]), torch.ones(2, 3)
    mask = ones > 0
    assert rl.explained_variance(returns, returns, mask) == 1.0
    assert rl.explained_variance(returns, ones, mask) == pytest.approx(0.0)
    assert rl.explained_variance(ones, returns, mask) == 0.0
