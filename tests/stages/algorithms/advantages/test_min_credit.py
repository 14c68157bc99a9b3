import torch

from stages.algorithms.advantages.min_credit import min_credit
from stages.algorithms.advantages.returns_to_go import returns_to_go
from stages.algorithms.advantages.step_zscore import step_zscore


def credit(rewards, ends):
    return min_credit(torch.tensor(rewards), torch.tensor(ends).bool())


def test_only_the_smallest_step_is_paid_and_only_once():
    rewards, ends = credit(
        [[0.0, 0.9, 0.0, 0.2, 0.7], [0.5, 0.0, 0.5, 0.0, 0.0]],
        [[0, 1, 0, 1, 1], [1, 0, 1, 0, 0]],
    )
    assert ends.int().tolist() == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]  # a tie: the first
    torch.testing.assert_close(rewards[0], torch.tensor([0.0, 0.0, 0.0, 0.2, 0.0]))
    torch.testing.assert_close(rewards[1], torch.tensor([0.5, 0.0, 0.0, 0.0, 0.0]))


def test_what_is_earned_from_a_token_on_is_the_minimum_up_to_the_worst_step_by_hand():
    rewards, _ = credit([[0.9, 0.0, 0.2, 0.7]], [[1, 0, 1, 1]])
    earned = returns_to_go(rewards, torch.ones(1, 4, dtype=torch.bool), gamma=1.0)
    torch.testing.assert_close(earned, torch.tensor([[0.2, 0.2, 0.2, 0.0]]))
    # The same rewards summed: what sum credit pays.
    summed = torch.tensor([[0.9, 0.0, 0.2, 0.7]])
    earned = returns_to_go(summed, torch.ones(1, 4, dtype=torch.bool), gamma=1.0)
    torch.testing.assert_close(earned, torch.tensor([[1.8, 0.9, 0.9, 0.7]]))


def test_it_is_the_limit_of_the_published_weights():
    rewards = torch.tensor([[0.9, 0.3, 0.6]])
    ends = torch.ones(1, 3, dtype=torch.bool)
    weighted = torch.softmax(-rewards / 0.001, 1) * rewards
    torch.testing.assert_close(min_credit(rewards, ends)[0], weighted)


def test_a_good_step_more_earns_nothing_and_a_bad_one_costs():
    short, _ = credit([[0.8, 0.0, 0.0]], [[1, 0, 0]])
    longer, _ = credit([[0.8, 0.9, 0.9]], [[1, 1, 1]])
    worse, _ = credit([[0.8, 0.9, 0.1]], [[1, 1, 1]])
    assert short.sum() == longer.sum() > worse.sum()


def test_negative_rewards_zeros_and_rows_without_steps():
    rewards, ends = credit([[-1.0, 0.0], [0.0, 0.0], [0.3, 0.4]], [[1, 1], [1, 1], [0, 0]])
    assert rewards.tolist() == [[-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert ends.tolist() == [[True, False], [True, False], [False, False]]


def test_with_one_step_min_and_sum_are_the_same():
    rewards = torch.tensor([[0.0, 0.4], [0.7, 0.0]])
    ends = torch.tensor([[False, True], [True, False]])
    found, paid = min_credit(rewards, ends)
    assert torch.equal(found, rewards)
    assert torch.equal(paid, ends)


def test_order_and_padding_change_nothing():
    generator = torch.Generator().manual_seed(0)
    rewards, ends = torch.rand(4, 5, generator=generator), torch.ones(4, 5, dtype=torch.bool)
    found, paid = min_credit(rewards, ends)
    order = torch.tensor([2, 0, 3, 1])
    wider = torch.cat([rewards, torch.full((4, 2), -1.0)], 1)[order]
    further = torch.cat([ends, torch.zeros(4, 2, dtype=torch.bool)], 1)[order]
    other, other_paid = min_credit(wider, further)
    assert torch.equal(other[:, :5], found[order])
    assert torch.equal(other_paid[:, :5], paid[order])
    assert not other_paid[:, 5:].any()


def test_min_credit_with_group_normalisation_compares_the_completions_smallest_steps():
    rewards, ends = credit([[0.9, 0.2, 0.0], [0.6, 0.8, 0.7]], [[1, 1, 0], [1, 1, 1]])
    found = step_zscore(
        rewards,
        ends,
        torch.zeros(2, dtype=torch.long),
        counted=torch.ones(2, dtype=torch.bool),
        ddof=0,
        eps=1e-9,
    )
    # The minima 0.2 and 0.6 are one deviation below and above their mean.
    torch.testing.assert_close(found, torch.tensor([[-1.0, -1.0, 0.0], [1.0, 0.0, 0.0]]))
