import pytest
import torch

from stages.algorithms.advantages.group_zscore import group_zscore
from stages.algorithms.advantages.step_zscore import step_zscore


def advantages(rewards, ends, groups=None, counted=None, ddof=0, eps=1e-6):
    rewards, ends = torch.tensor(rewards), torch.tensor(ends).bool()
    groups = torch.zeros(len(rewards), dtype=torch.long) if groups is None else torch.tensor(groups)
    counted = [True] * len(rewards) if counted is None else counted
    return step_zscore(rewards, ends, groups, counted=torch.tensor(counted), ddof=ddof, eps=eps)


def test_the_sum_of_the_normalised_rewards_of_the_steps_that_are_still_to_end():
    # R = 1, 0, 2, 1: mean 1, standard deviation sqrt(1/2); z = 0, -sqrt 2, sqrt 2, 0.
    # First completion: steps end at tokens 1 and 3. Second: at tokens 0 and 1.
    found = advantages(
        [[0.0, 1.0, 0.0, 0.0], [2.0, 1.0, 0.0, 0.0]], [[0, 1, 0, 1], [1, 1, 0, 0]], eps=1e-9
    )
    root = 2**0.5
    expected = torch.tensor([[-root, -root, -root, -root], [root, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_a_reward_of_zero_is_a_step_and_a_number_outside_the_steps_is_none():
    with_junk = advantages([[9.0, 1.0, 9.0], [0.0, 9.0, 0.0]], [[0, 1, 0], [1, 0, 0]])
    without = advantages([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0, 1, 0], [1, 0, 0]])
    assert torch.equal(with_junk, without)
    assert without[0].tolist() == pytest.approx([1.0, 1.0, 0.0], abs=1e-5)
    assert without[1].tolist() == pytest.approx([-1.0, 0.0, 0.0], abs=1e-5)


@pytest.mark.parametrize("ddof", [0, 1])
def test_with_one_step_each_it_is_the_outcome_form(ddof):
    generator = torch.Generator().manual_seed(0)
    outcomes = torch.rand(6, generator=generator)
    groups = torch.tensor([0, 1, 0, 1, 0, 0])
    lengths = torch.tensor([3, 1, 4, 2, 4, 1])
    mask = torch.arange(5) < lengths[:, None]
    ends = torch.arange(5) == (lengths - 1)[:, None]
    counted = torch.tensor([True, True, True, True, False, True])
    grid = torch.where(ends, outcomes[:, None], 0.0)
    found = step_zscore(grid, ends, groups, counted=counted, ddof=ddof, eps=1e-4)
    flat = group_zscore(outcomes, groups, counted=counted, ddof=ddof, eps=1e-4)
    torch.testing.assert_close(found, flat[:, None] * mask)


def test_a_step_cut_in_two_at_a_mean_reward_changes_no_other_tokens_credit():
    """A further step with the group's mean reward is worth 0; ddof 0 keeps the deviation's sum."""
    whole = advantages([[0.0, 2.0], [0.0, 0.0]], [[0, 1], [0, 1]], eps=1e-9)
    cut = advantages([[1.0, 2.0], [1.0, 0.0]], [[1, 1], [1, 1]], eps=1e-9)
    # Twice the steps, the same squares: the deviation falls by sqrt 2, the credit's shape stays.
    torch.testing.assert_close(cut, whole * 2**0.5)


def test_rows_in_any_order_and_padding_give_the_same():
    generator = torch.Generator().manual_seed(1)
    rewards = torch.rand(5, 6, generator=generator, dtype=torch.float64)
    ends = torch.rand(5, 6, generator=generator) < 0.5
    ends[:, 0] = True
    groups = torch.tensor([7, 3, 7, 3, 7])
    counted = torch.ones(5, dtype=torch.bool)
    found = step_zscore(rewards, ends, groups, counted=counted, ddof=1, eps=1e-4)
    order = torch.tensor([3, 1, 4, 0, 2])
    padded = torch.cat([rewards, torch.full((5, 3), 5.0, dtype=torch.float64)], 1)
    further = torch.cat([ends, torch.zeros(5, 3, dtype=torch.bool)], 1)
    other = step_zscore(
        padded[order], further[order], groups[order], counted=counted, ddof=1, eps=1e-4
    )
    torch.testing.assert_close(other[:, :6], found[order], rtol=1e-12, atol=1e-12)
    assert not other[:, 6:].any()


def test_equal_rewards_and_a_group_of_one_step_get_exactly_nothing():
    assert not advantages([[0.1, 0.1], [0.0, 0.1]], [[1, 1], [0, 1]]).any()
    assert not advantages([[0.0, 5.0]], [[0, 1]], ddof=1).any()
    assert not advantages([[0.0, 5.0]], [[0, 0]]).any()


def test_a_completion_that_does_not_count_changes_nothing_and_gets_nothing():
    two = advantages([[0.0, 1.0], [0.0, 0.0]], [[0, 1], [0, 1]])
    three = advantages(
        [[0.0, 1.0], [0.0, 0.0], [50.0, 9.0]], [[0, 1], [0, 1], [1, 1]], counted=[True, True, False]
    )
    assert torch.equal(three[:2], two)
    assert not three[2].any()


def test_summed_credit_pays_for_a_further_step_above_the_mean():
    """The known fault of the sum: two good steps earn twice what one earns."""
    found = advantages([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]], [[1, 1], [0, 1], [0, 1]])
    assert found[0, 0].item() == pytest.approx(2 * found[1, 0].item())
    assert found[1, 0] > 0
