from functools import partial

import presets
import pytest
import torch
from stages.loops.advantages import Advantage, Scored, of_tokens

from stages.algorithms.group_advantages import group_zscore

MASK = torch.tensor([[True, True, True], [True, True, False]])


def scored(step_rewards):
    """Totals 2 and 1, of which `step_rewards` are paid before the end."""
    earlier = torch.zeros(2) if step_rewards is None else step_rewards.sum(1)
    return Scored(
        end_rewards=torch.tensor([2.0, 1.0]) - earlier,
        penalties=torch.zeros(2, 3),
        mask=MASK,
        groups=torch.tensor([0, 0]),
        counted=torch.tensor([True, True]),
        greedy_rewards=lambda: torch.zeros(2),
        step_rewards=step_rewards,
    )


STEPS = torch.tensor([[1.5, 0.0, 0.0], [0.0, 0.0, 0.0]])


def test_one_advantage_a_completion_takes_the_sum_of_its_steps():
    found = of_tokens(presets.choice(Advantage, "group_centred"), scored(STEPS))
    assert found.tolist() == [[0.5, 0.5, 0.5], [-0.5, -0.5, 0.0]]


def test_rewards_to_go_take_each_step_where_it_is_paid():
    """To go: 2 0.5 0.5 | 1 1, mean 1, variance (1 + 0.25 + 0.25) / 5 = 0.3."""
    content = {"kind": "batch_whitened", "gamma": 1.0, "eps": 1e-8}
    whitened = partial(of_tokens, presets.choice(Advantage, content))
    found = whitened(scored(STEPS))
    root = 0.3**0.5
    assert found[0].tolist() == pytest.approx([1 / root, -0.5 / root, -0.5 / root], rel=1e-5)
    assert found[1].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)
    assert whitened(scored(None))[0].unique().numel() == 1, "all of it at the end"


WIDE = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
ENDS = torch.tensor([[True, False, True], [False, True, False], [True, True, True]])


def with_steps(end_rewards, step_rewards, **changes):
    given = {
        "end_rewards": torch.tensor(end_rewards),
        "penalties": torch.zeros(3, 3),
        "mask": WIDE,
        "groups": torch.tensor([0, 0, 0]),
        "counted": torch.tensor([True, True, True]),
        "greedy_rewards": lambda: torch.zeros(3),
        "step_rewards": step_rewards,
        "step_ends": ENDS,
    }
    return Scored(**(given | changes))


def advantage(step_weight=1.0, ddof=0):
    content = {"kind": "step_zscore", "step_weight": step_weight, "ddof": ddof, "eps": 1e-9}
    return partial(of_tokens, presets.choice(Advantage, content))


def test_steps_and_outcome_are_normalised_apart_and_added():
    # R = 1, 0, 0, 0, 1, 1: mean 1/2, deviation 1/2. Ends 3, 0, 0: mean 1, deviation sqrt 2.
    steps = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    found = advantage(step_weight=2.0)(with_steps([3.0, 0.0, 0.0], steps))
    root = 2**0.5
    expected = torch.tensor(
        [
            [2 * 0 + root, 2 * -1 + root, 2 * -1 + root],
            [2 * -1 - 1 / root, 2 * -1 - 1 / root, 0.0],
            [2 * 1 - 1 / root, 2 * 2 - 1 / root, 2 * 1 - 1 / root],
        ]
    )
    torch.testing.assert_close(found, expected)


def test_without_a_verdict_on_the_whole_the_steps_stand_alone():
    steps = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)) * ENDS
    # Ends that are equal but not 0 leave no rounding behind that looks like a signal.
    alone = advantage()(with_steps([0.0, 0.0, 0.0], steps))
    assert torch.equal(advantage()(with_steps([0.7, 0.7, 0.7], steps)), alone)
    assert alone.any()


def test_steps_without_signal_leave_the_outcome_form():
    ends = [1.0, 0.0, 0.0]
    found = advantage(ddof=1)(with_steps(ends, 0.3 * ENDS))
    outcome = group_zscore(
        torch.tensor(ends),
        torch.tensor([0, 0, 0]),
        counted=torch.tensor([True, True, True]),
        ddof=1,
        eps=1e-9,
    )
    assert torch.equal(found, outcome[:, None] * WIDE)


def test_the_scale_of_the_step_rewards_does_not_matter():
    steps = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)) * ENDS
    found = advantage()(with_steps([1.0, 0.0, 0.0], steps))
    torch.testing.assert_close(advantage()(with_steps([1.0, 0.0, 0.0], 100 * steps)), found)


def test_a_penalty_is_subtracted_from_the_outcome():
    steps = torch.zeros(3, 3)
    penalties = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    found = advantage()(with_steps([3.0, 0.0, 0.0], steps, penalties=penalties))
    assert torch.equal(found, advantage()(with_steps([2.0, -1.0, -3.0], steps)))


def test_a_reward_without_steps_is_refused():
    with pytest.raises(ValueError, match="found a reward without any"):
        advantage()(with_steps([1.0, 0.0, 0.0], None, step_ends=None))
