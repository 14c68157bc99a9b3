import pytest
import torch

from stages.algorithms.groups import (
    group_counts,
    group_means,
    group_stds,
    group_sums,
    without_signal,
)

# Two groups in mixed order, ids neither dense nor sorted: 7 has 1.5, 1, 0, 0 and 3 has 2, 4.
REWARDS = torch.tensor([1.5, 2.0, 1.0, 0.0, 4.0, 0.0], dtype=torch.float64)
GROUPS = torch.tensor([7, 3, 7, 7, 3, 7])
ALL = torch.ones(6, dtype=torch.bool)


def test_hand_worked_numbers():
    # 1.5 + 1 + 0 + 0 = 2.5, over 4: 0.625; 2 + 4 = 6, over 2: 3.
    assert group_sums(REWARDS, GROUPS).tolist() == [2.5, 6.0, 2.5, 2.5, 6.0, 2.5]
    assert group_counts(GROUPS, counted=ALL).tolist() == [4, 2, 4, 4, 2, 4]
    assert group_means(REWARDS, GROUPS, counted=ALL).tolist() == [
        0.625, 3.0, 0.625, 0.625, 3.0, 0.625,
    ]  # fmt: skip


def test_standard_deviations_by_hand():
    # Group 3: squares 1 + 1 = 2; over 2: 1, over 1: sqrt 2.
    # Group 7: 0.875^2 + 0.375^2 + 2 x 0.625^2 = 1.6875; over 4, over 3.
    population = group_stds(REWARDS, GROUPS, counted=ALL, ddof=0)
    sample = group_stds(REWARDS, GROUPS, counted=ALL, ddof=1)
    assert population[:2].tolist() == pytest.approx([(1.6875 / 4) ** 0.5, 1.0])
    assert sample[:2].tolist() == pytest.approx([0.5625**0.5, 2.0**0.5])


def test_a_row_that_does_not_count_enters_nothing_not_even_as_nan():
    rewards = torch.where(torch.arange(6) == 4, torch.nan, REWARDS)
    counted = torch.arange(6) != 4
    assert group_counts(GROUPS, counted=counted).tolist() == [4, 1, 4, 4, 1, 4]
    assert group_means(rewards, GROUPS, counted=counted)[1].item() == 2.0
    assert group_stds(rewards, GROUPS, counted=counted, ddof=0)[1].item() == 0.0
    assert without_signal(rewards, GROUPS, counted=counted).tolist() == [
        False, True, False, False, True, False,
    ]  # fmt: skip


def test_order_and_names_of_groups_do_not_matter():
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    for function in (group_means, without_signal):
        expected = function(REWARDS, GROUPS, counted=ALL)[order]
        renamed = torch.where(GROUPS == 7, 0, 2**60)[order]
        found = function(REWARDS[order], renamed, counted=ALL)
        torch.testing.assert_close(found, expected)


def test_a_group_too_small_for_its_divisor_has_no_deviation():
    two = torch.tensor([0.0, 1.0])
    found = group_stds(two, torch.tensor([5, 5]), counted=ALL[:2], ddof=2)
    assert found.tolist() == [0.0, 0.0]


def test_a_difference_of_one_rounding_step_is_a_signal():
    rewards = torch.tensor([0.1, 0.1])
    groups = torch.zeros(2, dtype=torch.long)
    assert without_signal(rewards, groups, counted=ALL[:2]).all()
    rewards[1] = torch.nextafter(rewards[1], torch.tensor(1.0))
    assert not without_signal(rewards, groups, counted=ALL[:2]).any()


def test_nothing_counted_and_nothing_at_all():
    nothing = torch.zeros(6, dtype=torch.bool)
    assert group_means(REWARDS, GROUPS, counted=nothing).tolist() == [0.0] * 6
    assert group_stds(REWARDS, GROUPS, counted=nothing, ddof=1).tolist() == [0.0] * 6
    assert without_signal(REWARDS, GROUPS, counted=nothing).all()
    assert without_signal(REWARDS[:0], GROUPS[:0], counted=ALL[:0]).shape == (0,)
    assert group_means(REWARDS[:0], GROUPS[:0], counted=ALL[:0]).shape == (0,)
