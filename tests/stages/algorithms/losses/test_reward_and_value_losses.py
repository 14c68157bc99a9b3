import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from stages.algorithms.losses.reward_and_value_losses import (
    bradley_terry_loss,
    clipped_value_loss,
    outcome_label_loss,
    step_label_loss,
)


def loss(chosen, rejected, probability, margin=0.0):
    return bradley_terry_loss(
        torch.tensor([chosen], dtype=torch.float64),
        torch.tensor([rejected], dtype=torch.float64),
        torch.tensor([probability], dtype=torch.float64),
        margin=margin,
    ).item()


def test_bradley_terry_hand_worked_numbers():
    # Margin ln 3: sigmoid = 3/4. p = 1: -ln 3/4. p = 0.8: -0.8 ln 3/4 - 0.2 ln 1/4.
    assert loss(1 + math.log(3), 1.0, 1.0) == pytest.approx(-math.log(0.75))
    assert loss(1 + math.log(3), 1.0, 0.8) == pytest.approx(
        -0.8 * math.log(0.75) - 0.2 * math.log(0.25)
    )


def test_a_margin_asks_for_rewards_that_are_farther_apart():
    # Llama 2: with p = 1 and m = 2, rewards 2 + ln 3 apart are as good as ln 3 without: -ln 3/4.
    assert loss(2 + math.log(3), 0.0, 1.0, margin=2.0) == pytest.approx(-math.log(0.75))
    # p = 0.75: m = 2 (2 p - 1) = 1; sigmoid(1 + ln 3 - 1) = 3/4.
    expected = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert loss(1 + math.log(3), 0.0, 0.75, margin=2.0) == pytest.approx(expected)


def test_a_margin_is_on_the_side_of_the_label_and_an_undecided_one_has_none():
    assert loss(0.0, 2 + math.log(3), 0.0, margin=2.0) == pytest.approx(-math.log(0.75))
    assert loss(2.0, -1.0, 0.2, margin=1.5) == pytest.approx(loss(-1.0, 2.0, 0.8, margin=1.5))
    assert loss(2.0, -1.0, 0.5, margin=1.5) == loss(2.0, -1.0, 0.5)


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_equal_rewards_cost_log_2_whatever_the_label(probability):
    assert loss(0.7, 0.7, probability) == pytest.approx(math.log(2))


def test_an_undecided_label_is_symmetric_and_a_flipped_one_swaps_the_roles():
    assert loss(2.0, -1.0, 0.5) == pytest.approx(loss(-1.0, 2.0, 0.5))
    assert loss(2.0, -1.0, 0.8) == pytest.approx(loss(-1.0, 2.0, 0.2))


def test_it_is_binary_cross_entropy_on_the_margin():
    generator = torch.Generator().manual_seed(0)
    chosen, rejected = torch.randn(2, 20, generator=generator, dtype=torch.float64)
    labels = torch.rand(20, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        bradley_terry_loss(chosen, rejected, labels),
        binary_cross_entropy_with_logits(chosen - rejected, labels, reduction="none"),
    )


def test_a_huge_margin_stays_finite():
    assert loss(1e4, -1e4, 1.0) == 0.0
    assert loss(-1e4, 1e4, 1.0) == pytest.approx(2e4)


def test_gradients_are_those_of_finite_differences_and_vanish_where_the_label_is_met():
    chosen = torch.tensor([0.3, math.log(4.0)], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([-0.2, 0.0], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([1.0, 0.8], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda c, r: bradley_terry_loss(c, r, labels), (chosen, rejected)
    )
    bradley_terry_loss(chosen, rejected, labels)[1].backward()
    # sigmoid(ln 4) = 0.8 is the label itself.
    assert chosen.grad[1].item() == pytest.approx(0.0, abs=1e-12)


def test_worked_by_hand():
    # -log(3/4) of a right and -log(1/4) of a wrong completion, both at P(right) = 3/4.
    scores = torch.full((2,), math.log(3.0))
    loss = outcome_label_loss(scores, torch.tensor([1.0, 0.0]))
    assert loss.tolist() == pytest.approx([math.log(4 / 3), math.log(4)])


def test_a_soft_label_is_a_mixture():
    loss = outcome_label_loss(torch.tensor([1.5]), torch.tensor([0.3]))
    hard = outcome_label_loss(torch.tensor([1.5, 1.5]), torch.tensor([1.0, 0.0]))
    assert loss.item() == pytest.approx(0.3 * hard[0].item() + 0.7 * hard[1].item())


def test_its_gradient_is_the_error_of_the_probability():
    scores = torch.tensor([2.0, -1.0, 0.0], requires_grad=True)
    labels = torch.tensor([1.0, 0.0, 0.5])
    outcome_label_loss(scores, labels).sum().backward()
    torch.testing.assert_close(scores.grad, torch.sigmoid(scores.detach()) - labels)


def test_extreme_scores_are_finite():
    loss = outcome_label_loss(torch.tensor([1e4, -1e4]), torch.tensor([0.0, 1.0]))
    assert loss.tolist() == [1e4, 1e4]


def test_swapping_right_and_wrong_is_turning_the_score():
    scores, labels = torch.tensor([0.7, -2.0]), torch.tensor([1.0, 0.25])
    torch.testing.assert_close(
        outcome_label_loss(scores, labels), outcome_label_loss(-scores, 1 - labels)
    )


# P(right) = 3/4, 1/5, 1/2.
SCORES = torch.tensor(
    [[1.0, 1 + math.log(3)], [math.log(4), 0.0], [-7.0, -7.0]], dtype=torch.float64
)


def random_scores(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_step_labels_hand_worked_numbers():
    assert step_label_loss(SCORES, torch.ones(3)).tolist() == pytest.approx(
        [-math.log(0.75), -math.log(0.2), math.log(2)]
    )
    assert step_label_loss(SCORES, torch.zeros(3)).tolist() == pytest.approx(
        [-math.log(0.25), -math.log(0.8), math.log(2)]
    )


def test_bradley_terry_hand_worked_numbers_of_soft_labels():
    probabilities = torch.tensor([0.75, 0.6, 0.3], dtype=torch.float64)
    assert step_label_loss(SCORES, probabilities).tolist() == pytest.approx(
        [
            -0.75 * math.log(0.75) - 0.25 * math.log(0.25),
            -0.6 * math.log(0.2) - 0.4 * math.log(0.8),
            math.log(2),
        ]
    )


def test_scores_moved_together_change_nothing():
    scores, labels = random_scores(4, 2), torch.tensor([0.0, 1.0, 1.0, 0.0])
    torch.testing.assert_close(step_label_loss(scores + 5, labels), step_label_loss(scores, labels))


def test_step_labels_a_huge_margin_stays_finite():
    scores = torch.tensor([[1e4, -1e4]])
    assert step_label_loss(scores, torch.tensor([0.0])).item() == 0
    assert step_label_loss(scores, torch.tensor([1.0])).item() == pytest.approx(2e4)


def test_gradients_are_those_of_finite_differences():
    scores = random_scores(5, 2).requires_grad_()
    probabilities = torch.tensor([0.0, 0.3, 0.5, 0.8, 1.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda s: step_label_loss(s, probabilities), scores)


def test_a_soft_label_gets_no_gradient_and_vanishes_where_it_is_met():
    scores = SCORES.clone().requires_grad_()
    probabilities = torch.tensor([0.75, 0.2, 0.5], dtype=torch.float64, requires_grad=True)
    step_label_loss(scores, probabilities).sum().backward()
    assert probabilities.grad is None
    torch.testing.assert_close(scores.grad, torch.zeros_like(SCORES))


def test_without_a_labelled_step_there_is_no_loss():
    with pytest.raises(ValueError, match="at least one labelled step"):
        step_label_loss(torch.zeros(0, 2), torch.zeros(0))


def at(value, old, target, clip):
    """Loss and gradient at one token."""
    values = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    losses = clipped_value_loss(
        values,
        torch.tensor([[old]], dtype=torch.float64),
        torch.tensor([[target]], dtype=torch.float64),
        clip=clip,
    )
    losses.sum().backward()
    return losses.item(), values.grad.item()


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "gradient"),
    [
        # Within 0.5 of the old value: (1.2 - 3)^2 / 2 = 1.62, gradient V - return.
        (1.2, 1.0, 3.0, 1.62, -1.8),
        # Moved 1 towards the return: clipped to 1.5, 1.5^2 / 2 = 1.125 beats 0.5: no gradient.
        (2.0, 1.0, 3.0, 1.125, 0.0),
        # Moved 1 away from it: the unclipped (0 - 3)^2 / 2 = 4.5 is the larger.
        (0.0, 1.0, 3.0, 4.5, -3.0),
    ],
)
def test_value_hand_worked_numbers(value, old, target, loss, gradient):
    assert at(value, old, target, 0.5) == (pytest.approx(loss), pytest.approx(gradient))


def test_with_a_wide_clip_it_is_half_the_squared_error():
    generator = torch.Generator().manual_seed(0)
    values, old, returns = torch.randn(3, 2, 5, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        clipped_value_loss(values, old, returns, clip=1e9), 0.5 * (values - returns) ** 2
    )


def test_before_any_move_the_gradient_is_the_error_whatever_the_clip():
    assert at(1.0, 1.0, 3.0, 0.1) == (pytest.approx(2.0), pytest.approx(-2.0))


def test_value_gradients_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(1)
    values, old, returns = torch.randn(3, 2, 5, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda v: clipped_value_loss(v, old, returns, clip=0.5), values.requires_grad_()
    )


def test_old_values_and_returns_get_no_gradient():
    inputs = [torch.randn(2, 3).requires_grad_() for _ in range(3)]
    clipped_value_loss(*inputs, clip=0.2).sum().backward()
    assert inputs[0].grad is not None
    assert inputs[1].grad is None
    assert inputs[2].grad is None
