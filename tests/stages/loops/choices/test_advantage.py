import pytest
import torch

from stages.loops.choices.advantage import BatchWhitened, GroupCentred
from stages.loops.choices.scored import Scored

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
    found = GroupCentred(kind="group_centred")(scored(STEPS))
    assert found.tolist() == [[0.5, 0.5, 0.5], [-0.5, -0.5, 0.0]]


def test_rewards_to_go_take_each_step_where_it_is_paid():
    """To go: 2 0.5 0.5 | 1 1, mean 1, variance (1 + 0.25 + 0.25) / 5 = 0.3."""
    whitened = BatchWhitened(kind="batch_whitened", gamma=1.0, eps=1e-8)
    found = whitened(scored(STEPS))
    root = 0.3**0.5
    assert found[0].tolist() == pytest.approx([1 / root, -0.5 / root, -0.5 / root], rel=1e-5)
    assert found[1].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)
    assert whitened(scored(None))[0].unique().numel() == 1, "all of it at the end"
