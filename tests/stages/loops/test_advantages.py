"""Advantages are those of the formulas, of any groups, and exactly 0 without a signal."""

import math
import random
from dataclasses import replace

import pytest
import rl_by_hand
import torch
from rl_by_hand import Rewarded
from tiny_checkpoints import load
from tiny_rollouts import make_models, make_prompts, make_rollouts

from stages.loops import rl, rollouts
from stages.loops.method import HYPERPARAMETERS, OWN, Method
from stages.rewards.completion_rewards import CompletionRewards

METHODS = {
    "group_zscore": {"ddof": 1, "eps": 1e-4},
    "group_zscore, n": {"ddof": 0, "eps": 0.1},
    "group_centred": {},
    "mean_normalised": {"eps": 0.01},
    "batch_std": {"ddof": 1, "eps": 1e-4},
    "leave_one_out": {},
    "greedy_baseline": {},
    "batch_whitened": {"gamma": 1.0, "whiten_eps": 1e-8},
    "batch_whitened, discounted": {"gamma": 0.9, "whiten_eps": 0.1},
    "step_zscore": {"step_weight": 2.0, "ddof": 1, "eps": 1e-4},
    "step_zscore, n": {"step_weight": 0.5, "ddof": 0, "eps": 0.1},
    "teacher": {},
    "teacher, rewarded": {"reward_coef": 2.0},
    "gae": {"gamma": 0.9, "lam": 0.8, "value_lam": 0.5},
    "gae, by length": {"gamma": 0.95, "lam_alpha": 0.5, "value_lam": 1.0, "whiten_eps": None},
}
"""Advantage -> numbers. A new advantage is a row, and a formula in `rl_by_hand`."""


MODELS = make_models(load("llama"))


def make_method(name):
    advantage = name.partition(",")[0]
    kl = {"kl": "none"} if advantage == "mean_normalised" else {}
    return Method(advantage=advantage, **METHODS[name], **kl)


def test_every_advantage_is_a_row():
    assert {make_method(name).advantage for name in METHODS} | {OWN} == {
        *HYPERPARAMETERS["advantage"]
    }


@pytest.fixture(autouse=True)
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def draw(seed, method):
    """Groups of 1 to 4 completions in any order, some not counted; rewards that may be equal.

    Rewards are eighths, whose sums are exact: equal numbers are equal however they are added.
    """
    chance, rows = random.Random(seed), []
    compares_signs = method.advantage == "mean_normalised"
    for group in chance.sample(range(-3, 9), chance.randint(1, 4)):
        greedy, high = chance.randint(0, 3) / 8, chance.choice([1, 9])
        for _ in range(chance.randint(1, 4)):
            length = chance.randint(1, 5)
            costs = 0 if compares_signs or seed % 3 == 0 else 3
            penalties = [chance.randint(0, costs) / 8 for _ in range(length)]
            ends = sorted(chance.sample(range(length), chance.randint(0, length)))
            has_steps = method.advantage in ("step_zscore", "batch_whitened", "gae")
            steps = {end: chance.randint(0, 8) / 8 for end in ends if has_steps}
            row = Rewarded(group, chance.randint(0, high) / 8, penalties, steps, greedy=greedy)
            row.counted = chance.random() < 0.8
            row.teacher = [chance.gauss(0, 1) for _ in range(length)]
            row.values = [chance.gauss(0, 1) for _ in range(length)]
            rows.append(row)
    chance.shuffle(rows)
    return rows


def pad(rows, name, width, dtype=torch.float64):
    result = torch.zeros(len(rows), width, dtype=dtype)
    for place, row in enumerate(rows):
        numbers = getattr(row, name)
        result[place, : len(numbers)] = torch.tensor(numbers, dtype=dtype)
    return result


def compute_ours(rows, method):
    """By the loop's functions; rows of the grid beside the advantages: the targets of GAE."""
    lengths, width = [len(row.penalties) for row in rows], max(len(r.penalties) for r in rows)
    batch = make_rollouts(lengths, [row.group for row in rows])
    counted = torch.tensor([row.counted for row in rows])
    steps, ends = torch.zeros(len(rows), width), torch.zeros(len(rows), width, dtype=torch.bool)
    for place, row in enumerate(rows):
        for end, reward in row.steps.items():
            steps[place, end], ends[place, end] = reward, True
    rewards = CompletionRewards(
        totals=[row.total for row in rows], step_rewards=steps, step_ends=ends
    )
    penalties = pad(rows, "penalties", width)
    match method.advantage:
        case "teacher":
            inputs = method, rewards, penalties, batch, counted
            # The policy's log-probs are 0.
            logs = torch.zeros_like(penalties), pad(rows, "teacher", width)
            return rl.compute_teacher_advantages(*inputs, *logs), None
        case "gae":
            value = TableOfValues(pad(rows, "values", width))
            models = replace(MODELS, value=value)
            places = {group: place for place, group in enumerate({row.group: 0 for row in rows})}
            groups = [places[row.group] for row in rows]
            batch = replace(batch, prompts=make_prompts(len(places)), groups=groups)
            batches = rollouts.make_batches(models, batch, counted)
            mask = batch.mask() & counted[:, None]
            estimates, _ = rl.compute_gae(value, batches, method, rewards, penalties, mask)
            return estimates["advantages"], estimates["returns"]
        case _:
            greedy = torch.tensor([row.greedy for row in rows])
            inputs = method, rewards, penalties, batch, counted, greedy.float()
            return rl.compute_reward_advantages(*inputs), None


class TableOfValues(torch.nn.Module):
    """A value model whose values are these."""

    def __init__(self, values):
        super().__init__()
        self.values = values

    def forward(self, batch, each_token):
        return self.values[batch.indices, : batch.mask.shape[1]]


@pytest.mark.parametrize("name", METHODS)
def test_advantages_are_those_of_the_formulas(name):
    method, zeros = make_method(name), 0
    for seed in range(40):
        rows = draw(seed, method)
        actual, targets = compute_ours(rows, method)
        assert actual.isfinite().all()
        expected = rl_by_hand.advantages(rows, method)
        for numbers, row in zip(actual.tolist(), expected, strict=True):
            assert numbers == pytest.approx([*row, *[0.0] * (len(numbers) - len(row))], abs=1e-7)
            if all(value == 0 for value in row):  # exactly: rounding is not a signal
                assert not any(numbers)
                zeros += 1
        if targets is not None:
            for numbers, row in zip(targets.tolist(), rows, strict=True):
                if row.counted:
                    expected = rl_by_hand.value_targets(row, method)
                    assert numbers[: len(expected)] == pytest.approx(expected, abs=1e-7)
    assert zeros > 0


def group_of(totals, steps=None):
    ends = None if steps is None else steps != 0
    return CompletionRewards(totals=totals, step_rewards=steps, step_ends=ends)


@pytest.mark.parametrize("name", [n for n in METHODS if not n.startswith(("gae", "teacher"))])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e8, 1e15])
def test_rewards_far_from_0_that_hardly_differ_have_bounded_scores(name, scale):
    """In float32, where 1e8 and its neighbour are 8 apart; groups of one among them."""
    torch.set_default_dtype(torch.float32)
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
