"""Advantages of rewards that hardly differ, and what GAE says of a value model.

Their formulas, in whole steps: `test_definitions`.
"""

import math
import random

import presets
import pytest
import torch
from tiny_rollouts import make_rollouts

from stages.loops import rl
from stages.loops.method import HYPERPARAMETERS, OWN, Method
from stages.rewards.completion_rewards import CompletionRewards

METHODS = {
    method.advantage: method
    for method in (Method(advantage="batch_std"), *map(presets.method, presets.GROUP_RL))
}
"""Advantage of rewards -> a method; those of models, and yours, are in `test_definitions` alone."""


def test_every_advantage_of_rewards_is_a_row():
    assert METHODS.keys() | {"gae", "teacher", OWN} == {*HYPERPARAMETERS["advantage"]}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e8, 1e15])
def test_rewards_far_from_0_that_hardly_differ_have_bounded_scores(name, scale):
    """In float32, where 1e8 and its neighbour are 8 apart; groups of one among them."""
    chance, method = random.Random(1), METHODS[name]
    for _ in range(6):
        groups = [chance.randint(0, 3) for _ in range(chance.randint(1, 12))]
        base = torch.full((len(groups),), scale)
        above = torch.tensor([chance.random() < 0.5 for _ in groups])
        rewards = torch.where(above, base.nextafter(2 * base), base)
        steps = rewards[:, None] * torch.tensor([0.0, 1.0])
        by_step = {"step_rewards": steps, "step_ends": steps != 0} if name == "step_zscore" else {}
        result = rl.compute_reward_advantages(
            method,
            CompletionRewards(totals=rewards.tolist(), **by_step),
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


def test_the_explained_variance_of_returns_that_are_all_the_same_is_0():
    """Others are in `test_definitions`."""
    returns, ones = torch.tensor([[1.0, 2.0, 3.0]]), torch.ones(1, 3)
    assert rl.explained_variance(ones, returns, ones > 0) == 0.0
