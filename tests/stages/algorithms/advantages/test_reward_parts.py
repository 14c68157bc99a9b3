import math

import pytest
import torch

from stages.algorithms.advantages.reward_parts import normalised_sum, weighted_sum

GROUPS = torch.tensor([0, 0, 1, 1])
ALL = torch.ones(4, dtype=torch.bool)


def test_the_weighted_sum_by_hand():
    parts = torch.tensor([[1.0, 2.0], [10.0, -10.0]])
    # 1 + 0.5 * 10; 2 - 0.5 * 10.
    assert weighted_sum(parts, torch.tensor([1.0, 0.5])).tolist() == [6.0, -3.0]


def test_the_normalised_sum_by_hand():
    # Within groups of two, ddof 0: every difference becomes (-1, 1) or (1, -1).
    #   part 0: (0, 1), (5, 9) -> (-1, 1), (-1, 1);  part 1: (100, 0), (3, 3) -> (1, -1), (0, 0)
    #   weights 1 and 2: (-1 + 2, 1 - 2), (-1, 1) = (1, -1, -1, 1)
    #   over the batch: mean 0, std 1.
    parts = torch.tensor([[0.0, 1.0, 5.0, 9.0], [100.0, 0.0, 3.0, 3.0]], dtype=torch.float64)
    weights = torch.tensor([1.0, 2.0], dtype=torch.float64)
    found = normalised_sum(parts, weights, GROUPS, counted=ALL, ddof=0, eps=0.0)
    assert found.tolist() == pytest.approx([1.0, -1.0, -1.0, 1.0])


def test_the_eps_enters_both_divisions():
    # One part (0, 2): std 1, eps 1 -> (-1/2, 1/2); of these std 1/2, eps 1 -> (-1/3, 1/3).
    parts, weights = torch.tensor([[0.0, 2.0]]), torch.ones(1)
    found = normalised_sum(parts, weights, GROUPS[:2], counted=ALL[:2], ddof=0, eps=1.0)
    assert found.tolist() == pytest.approx([-1 / 3, 1 / 3])


def test_a_parts_units_do_not_matter_but_its_weight_does():
    generator = torch.Generator().manual_seed(0)
    parts = torch.rand(2, 4, generator=generator, dtype=torch.float64)
    weights = torch.tensor([1.0, 0.3], dtype=torch.float64)
    settings = {"counted": ALL, "ddof": 1, "eps": 0.0}
    found = normalised_sum(parts, weights, GROUPS, **settings)
    units = torch.tensor([[1000.0], [0.01]], dtype=torch.float64)
    torch.testing.assert_close(normalised_sum(parts * units, weights, GROUPS, **settings), found)
    assert not torch.allclose(normalised_sum(parts, weights.flip(0), GROUPS, **settings), found)


def test_two_completions_with_one_sum_may_differ_in_advantage():
    # The first two sum to 1 both, but what the second did is the rarer:
    # z of (1, 0, 1, 0): +-1/2 / sqrt(1/3); of (0, 1, 0, 0): -1/4 or 3/4 over 1/2.
    parts = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    one_group, weights = torch.zeros(4, dtype=torch.long), torch.ones(2, dtype=torch.float64)
    first, second = math.sqrt(3) / 2 - 0.5, -math.sqrt(3) / 2 + 1.5
    found = normalised_sum(parts, weights, one_group, counted=ALL, ddof=1, eps=0.0)
    assert weighted_sum(parts, weights)[:2].tolist() == [1.0, 1.0]
    assert (found[1] / found[0]).item() == pytest.approx(second / first)


def test_a_group_without_signal_in_any_part_gets_exactly_zero():
    parts = torch.tensor([[0.1, 0.1, 0.1, 0.4, 0.9], [0.7, 0.7, 0.7, 0.2, 0.3]])
    groups, counted = torch.tensor([0, 0, 0, 1, 1]), torch.ones(5, dtype=torch.bool)
    found = normalised_sum(parts, torch.ones(2), groups, counted=counted, ddof=1, eps=1e-12)
    assert found[:3].tolist() == [0.0, 0.0, 0.0]
    assert found[3:].tolist() == [pytest.approx(-found[4].item()), found[4].item()]
