"""Each loss by hand, and what holds for every loss of pairs, whatever its formula."""

import math

import pytest
import torch

from stages.algorithms.losses.preference_losses import (
    PairLogprobs,
    dpo_loss,
    finite,
    hinge_loss,
    ipo_mean_loss,
    ipo_sum_loss,
    kto_loss,
    kto_reference_point,
    robust_dpo_loss,
)
from stages.algorithms.losses.reference_free_losses import cpo_loss, orpo_loss, simpo_loss
from stages.algorithms.losses.reward_and_value_losses import bradley_terry_loss


def pairs(chosen, rejected, chosen_ref, rejected_ref, lengths=(None, None)):
    return PairLogprobs(chosen, rejected, chosen_ref, rejected_ref, *lengths)


def test_it_is_the_gain_of_the_chosen_over_the_gain_of_the_rejected():
    # (-4 + 5) - (-6 + 7) = 0 and (-1 + 3) - (-2 + 1) = 3.
    result = pairs(
        torch.tensor([-4.0, -1.0]),
        torch.tensor([-6.0, -2.0]),
        torch.tensor([-5.0, -3.0]),
        torch.tensor([-7.0, -1.0]),
    )
    assert result.log_ratio_margin().tolist() == [0.0, 3.0]


def test_infinities_become_the_largest_numbers_without_gradient_and_numbers_stay():
    values = torch.tensor([-torch.inf, -3.0, 1e30, torch.inf], requires_grad=True)
    bounded = finite(values)
    assert bounded.isfinite().all()
    assert bounded[1:3].tolist() == values[1:3].tolist()
    (0.0 * bounded).sum().backward()
    assert values.grad.tolist() == [0.0] * 4


CHOSEN = torch.tensor([-4.0, -9.0, -2.0], dtype=torch.float64)
REJECTED = torch.tensor([-6.0, -7.0, -2.5], dtype=torch.float64)
CHOSEN_REF = torch.tensor([-5.0, -8.0, -2.0], dtype=torch.float64)
REJECTED_REF = torch.tensor([-5.0, -8.0, -2.5], dtype=torch.float64)
PAIRS = pairs(CHOSEN, REJECTED, CHOSEN_REF, REJECTED_REF)


def test_dpo_hand_worked_numbers():
    # Pair 0: margin 0.5 ((-4 + 5) - (-6 + 5)) = 1, loss = ln(1 + e^-1). Pair 1: margin -1.
    losses, margins = dpo_loss(PAIRS, beta=0.5, label_smoothing=0.0)
    assert margins.tolist() == [1.0, -1.0, 0.0]
    assert losses.tolist() == pytest.approx(
        [math.log(1 + math.exp(-1)), math.log(1 + math.e), math.log(2)]
    )


def test_at_the_reference_the_loss_is_log_2_and_the_gradient_minus_half_beta():
    chosen, rejected = CHOSEN_REF.clone().requires_grad_(), REJECTED_REF.clone().requires_grad_()
    losses, margins = dpo_loss(
        pairs(chosen, rejected, CHOSEN_REF, REJECTED_REF), beta=0.3, label_smoothing=0.0
    )
    assert margins.tolist() == [0.0] * 3
    assert losses.tolist() == pytest.approx([math.log(2)] * 3)
    losses.sum().backward()
    # d/dm -log sigmoid(m) = -sigmoid(-m) = -1/2 at 0, times beta.
    assert chosen.grad.tolist() == pytest.approx([-0.15] * 3)
    assert rejected.grad.tolist() == pytest.approx([0.15] * 3)


def test_it_is_bradley_terry_on_the_implicit_rewards():
    losses, _ = dpo_loss(PAIRS, beta=0.3, label_smoothing=0.0)
    expected = bradley_terry_loss(
        0.3 * (CHOSEN - CHOSEN_REF),
        0.3 * (REJECTED - REJECTED_REF),
        torch.ones(3, dtype=torch.float64),
    )
    torch.testing.assert_close(losses, expected)


def test_the_gradient_is_beta_times_the_probability_of_the_wrong_order():
    chosen = CHOSEN.clone().requires_grad_()
    losses, _ = dpo_loss(
        pairs(chosen, REJECTED, CHOSEN_REF, REJECTED_REF), beta=0.5, label_smoothing=0.0
    )
    losses.sum().backward()
    # Margins 1, -1, 0: sigmoid(-m) = 1 / (1 + e), e / (1 + e), 1 / 2.
    wrong = [1 / (1 + math.e), math.e / (1 + math.e), 0.5]
    assert chosen.grad.tolist() == pytest.approx([-0.5 * p for p in wrong])


def test_a_smoothed_label_mixes_both_orders_and_is_met_at_its_probability():
    # Margin 1, e = 0.2: -0.8 ln sigmoid(1) - 0.2 ln sigmoid(-1) = ln(1 + e^-1) + 0.2 (1).
    losses, margins = dpo_loss(PAIRS, beta=0.5, label_smoothing=0.2)
    assert margins.tolist() == [1.0, -1.0, 0.0]
    assert losses[0].item() == pytest.approx(math.log(1 + math.exp(-1)) + 0.2)
    assert losses[2].item() == pytest.approx(math.log(2))
    # sigmoid(ln 4) = 0.8 = 1 - e: the gradient vanishes.
    zero = torch.zeros(1, dtype=torch.float64)
    met = torch.full((1,), math.log(4.0), dtype=torch.float64, requires_grad=True)
    dpo_loss(pairs(met, zero, zero, zero), beta=1.0, label_smoothing=0.2)[0].sum().backward()
    assert met.grad.item() == pytest.approx(0.0, abs=1e-12)


ZEROS = torch.zeros(3, dtype=torch.float64)
H = torch.tensor([2.0, -2.0, 0.0], dtype=torch.float64)


def robust(h, flip_rate):
    return robust_dpo_loss(pairs(h, ZEROS, ZEROS, ZEROS), beta=0.5, flip_rate=flip_rate)


def test_robust_dpo_hand_worked_numbers():
    # Margin 1, e = 1/4: (3/4 l(1) - 1/4 l(-1)) / (1/2) = 1.5 l(1) - 0.5 l(-1), l(-1) = l(1) + 1.
    losses, margins = robust(H, 0.25)
    right = math.log(1 + math.exp(-1))
    assert margins.tolist() == [1.0, -1.0, 0.0]
    assert losses.tolist() == pytest.approx([right - 0.5, right + 1.5, math.log(2)])


def test_without_flips_it_is_dpo():
    expected, _ = dpo_loss(pairs(H, ZEROS, ZEROS, ZEROS), beta=0.5, label_smoothing=0.0)
    torch.testing.assert_close(robust(H, 0.0)[0], expected)


def test_its_mean_over_flipped_labels_is_the_loss_of_the_true_ones():
    as_labelled, swapped = robust(H, 0.3)[0], robust(-H, 0.3)[0]
    true_margins = 0.5 * H
    expected = torch.log1p(torch.exp(-true_margins))
    torch.testing.assert_close(0.7 * as_labelled + 0.3 * swapped, expected)


IPO_CHOSEN = torch.tensor([-4.0, -9.0], dtype=torch.float64)
IPO_REJECTED = torch.tensor([-6.0, -7.0], dtype=torch.float64)
IPO_CHOSEN_REF = torch.tensor([-5.0, -8.0], dtype=torch.float64)
IPO_REJECTED_REF = torch.tensor([-5.0, -8.0], dtype=torch.float64)
FOUR = (IPO_CHOSEN, IPO_REJECTED, IPO_CHOSEN_REF, IPO_REJECTED_REF)


def test_hand_worked_sums():
    # h = (-4 + 5) - (-6 + 5) = 2 and -2; beta 0.25 wants h = 2.
    losses, margins = ipo_sum_loss(pairs(*FOUR), beta=0.25)
    assert losses.tolist() == [0.0, 16.0]
    assert margins.tolist() == [0.5, -0.5]


def test_hand_worked_means():
    # h = 1/2 - (-1)/4 = 0.75 and -1/2 - 1/1 = -1.5; beta 0.5 wants 1.
    lengths = torch.tensor([2, 2]), torch.tensor([4, 1])
    losses, margins = ipo_mean_loss(pairs(*FOUR, lengths), beta=0.5)
    assert losses.tolist() == pytest.approx([0.0625, 6.25])
    assert margins.tolist() == pytest.approx([0.375, -0.75])


def test_both_are_the_same_for_single_tokens():
    ones = torch.ones(2, dtype=torch.long)
    for actual, expected in zip(
        ipo_mean_loss(pairs(*FOUR, (ones, ones)), beta=0.3),
        ipo_sum_loss(pairs(*FOUR), beta=0.3),
        strict=True,
    ):
        assert torch.equal(actual, expected)


def test_the_mean_does_not_change_when_a_completion_is_repeated_token_by_token():
    lengths = torch.tensor([3, 5]), torch.tensor([2, 7])
    once, _ = ipo_mean_loss(pairs(*FOUR, lengths), beta=0.3)
    doubled = pairs(*(2 * values for values in FOUR), (2 * lengths[0], 2 * lengths[1]))
    twice, _ = ipo_mean_loss(doubled, beta=0.3)
    torch.testing.assert_close(once, twice)


def test_a_margin_that_is_too_large_is_pulled_back():
    chosen = (IPO_CHOSEN + 10).requires_grad_()
    ipo_sum_loss(pairs(chosen, *FOUR[1:]), beta=0.25)[0].sum().backward()
    # h = 12 and 8, wanted 2: gradient 2 (h - 2).
    assert chosen.grad.tolist() == pytest.approx([20.0, 12.0])


HINGE_ZEROS = torch.zeros(4, dtype=torch.float64)


def test_dpo_hand_worked_numbers_and_no_gradient_from_margin_one_on():
    # beta 0.5 times h = 4, 1, 0, -4.
    chosen = torch.tensor([4.0, 1.0, 0.0, -4.0], dtype=torch.float64, requires_grad=True)
    losses, margins = hinge_loss(pairs(chosen, HINGE_ZEROS, HINGE_ZEROS, HINGE_ZEROS), beta=0.5)
    assert margins.tolist() == [2.0, 0.5, 0.0, -2.0]
    assert losses.tolist() == [0.0, 0.5, 1.0, 3.0]
    losses.sum().backward()
    assert chosen.grad.tolist() == [0.0, -0.5, -0.5, -0.5]


def test_only_what_was_gained_over_the_reference_counts():
    policy = torch.tensor([-3.0, -2.0, -8.0, -1.0], dtype=torch.float64)
    losses, margins = hinge_loss(pairs(policy, policy - 5, policy, policy - 5), beta=0.5)
    assert margins.tolist() == [0.0] * 4
    assert losses.tolist() == [1.0] * 4


LENGTHS = torch.tensor([2, 5, 3]), torch.tensor([4, 3, 3])


def of_columns(loss, **numbers):
    return lambda *four: loss(pairs(*four, LENGTHS), **numbers)


WITH_REFERENCE = {
    "dpo": of_columns(dpo_loss, beta=0.3, label_smoothing=0.0),
    "cdpo": of_columns(dpo_loss, beta=0.3, label_smoothing=0.1),
    "robust": of_columns(robust_dpo_loss, beta=0.3, flip_rate=0.1),
    "robust, no flips": of_columns(robust_dpo_loss, beta=0.3, flip_rate=0.0),
    "ipo_sum": of_columns(ipo_sum_loss, beta=0.3),
    "ipo_mean": of_columns(ipo_mean_loss, beta=0.3),
    "hinge": of_columns(hinge_loss, beta=0.3),
}
WITHOUT = {
    "simpo": of_columns(simpo_loss, beta=2.0, gamma=0.5),
    "orpo": of_columns(orpo_loss, lam=0.3),
    "orpo, no odds": of_columns(orpo_loss, lam=0.0),
    "cpo": of_columns(cpo_loss, beta=0.3, alpha=0.5),
    "cpo, no likelihood": of_columns(cpo_loss, beta=0.3, alpha=0.0),
}
ALL = WITH_REFERENCE | WITHOUT


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_finite_differences(name):
    inputs = (CHOSEN.clone().requires_grad_(), REJECTED.clone().requires_grad_())
    loss = ALL[name]
    assert torch.autograd.gradcheck(lambda c, r: loss(c, r, CHOSEN_REF, REJECTED_REF), inputs)


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"orpo, no odds"}))
def test_a_rise_of_the_chosen_lowers_the_loss_and_of_the_rejected_raises_it(name):
    chosen, rejected = CHOSEN_REF.clone().requires_grad_(), REJECTED_REF.clone().requires_grad_()
    losses, margins = ALL[name](chosen, rejected, CHOSEN_REF, REJECTED_REF)
    assert losses.shape == margins.shape == (3,)
    losses.sum().backward()
    assert (chosen.grad < 0).all()
    assert (rejected.grad > 0).all()


@pytest.mark.parametrize("name", WITH_REFERENCE)
def test_the_reference_gets_no_gradient(name):
    inputs = [t.clone().requires_grad_() for t in (CHOSEN, REJECTED, CHOSEN_REF, REJECTED_REF)]
    WITH_REFERENCE[name](*inputs)[0].sum().backward()
    assert inputs[0].grad is not None
    assert inputs[2].grad is None
    assert inputs[3].grad is None


@pytest.mark.parametrize("name", WITH_REFERENCE)
def test_at_the_reference_the_margin_is_zero(name):
    _, margins = WITH_REFERENCE[name](CHOSEN_REF, REJECTED_REF, CHOSEN_REF, REJECTED_REF)
    assert margins.tolist() == [0.0] * 3


@pytest.mark.parametrize("name", ALL)
def test_a_pair_does_not_feel_the_others(name):
    losses, margins = ALL[name](CHOSEN, REJECTED, CHOSEN_REF, REJECTED_REF)
    others = CHOSEN + torch.tensor([1.0, -1.0, 0.0])
    result, found_margins = ALL[name](others, REJECTED, CHOSEN_REF, REJECTED_REF)
    assert result[2] == losses[2]
    assert found_margins[2] == margins[2]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_and_infinite_margins_give_no_nan(name, dtype):
    zeros = torch.zeros(3, dtype=dtype)
    for values in ([-1e6, -1e30, -torch.inf], [-1e-30, -1e-6, -0.1]):
        for first in (True, False):
            low = torch.tensor(values, dtype=dtype, requires_grad=True)
            other = torch.full((3,), -1.0, dtype=dtype, requires_grad=True)
            pair = (low, other) if first else (other, low)
            losses, margins = ALL[name](*pair, zeros, zeros)
            losses.sum().backward()
            for result in (losses, margins, low.grad, other.grad):
                assert result is None or not result.isnan().any()


@pytest.mark.parametrize("name", sorted(WITH_REFERENCE.keys() - {"ipo_mean"}))
def test_no_pair_gives_no_loss(name):
    empty = torch.zeros(0)
    losses, margins = WITH_REFERENCE[name](empty, empty, empty, empty)
    assert losses.shape == margins.shape == (0,)


KTO_LOGPROBS = torch.tensor([-3.0, -5.0, -4.0], dtype=torch.float64)
KTO_REF = torch.tensor([-5.0, -5.0, -2.0], dtype=torch.float64)
DESIRABLE = torch.tensor([True, False, False])


def point(value):
    return torch.tensor(value, dtype=torch.float64)


def kto(logprobs, ref, desirable, z0, **changes):
    numbers = {"beta": 0.5, "desirable_weight": 2.0, "undesirable_weight": 1.0}
    return kto_loss(logprobs, ref, desirable, z0, **(numbers | changes))


def test_kto_hand_worked_numbers():
    # Rewards 0.5 (2, 0, -2) = 1, 0, -1; z0 = 1: gains 0.5, -0.5, -1.5.
    # Desirable: 2 (1 - sigmoid(0.5)); undesirable: 1 - sigmoid(0.5) and 1 - sigmoid(1.5).
    losses, rewards = kto(KTO_LOGPROBS, KTO_REF, DESIRABLE, point(1.0))
    assert rewards.tolist() == [1.0, 0.0, -1.0]
    half, more = 1 / (1 + math.exp(0.5)), 1 / (1 + math.exp(1.5))
    assert losses.tolist() == pytest.approx([2 * half, half, more])


def test_the_reference_point_is_the_mean_of_mismatched_log_ratios_and_never_negative():
    # Log-ratios 3, -1: mean 1.
    result = kto_reference_point(point([-2.0, -6.0]), point([-5.0, -5.0]))
    assert result.item() == 1.0
    assert kto_reference_point(point([-6.0, -6.0]), point([-5.0, -5.0])).item() == 0.0
    assert kto_reference_point(torch.zeros(0), torch.zeros(0)).item() == 0.0


def test_neither_the_reference_nor_the_reference_point_gets_a_gradient():
    logprobs, ref = KTO_LOGPROBS.clone().requires_grad_(), KTO_REF.clone().requires_grad_()
    mismatched = point([-1.0, -2.0]).requires_grad_()
    z0 = kto_reference_point(mismatched, point([-5.0, -5.0]))
    assert not z0.requires_grad
    kto(logprobs, ref, DESIRABLE, point(1.0).requires_grad_())[0].sum().backward()
    assert logprobs.grad is not None
    assert ref.grad is None
    assert mismatched.grad is None


def test_at_the_reference_every_loss_is_half_its_weight_and_the_gradient_a_quarter():
    logprobs = KTO_REF.clone().requires_grad_()
    losses, _ = kto(logprobs, KTO_REF, DESIRABLE, point(0.0))
    assert losses.tolist() == [1.0, 0.5, 0.5]
    losses.sum().backward()
    # sigmoid'(0) = 1/4, times beta 0.5, times the weight.
    assert logprobs.grad.tolist() == pytest.approx([-0.25, 0.125, 0.125])


def test_with_mirrored_rewards_a_desirable_row_costs_what_an_undesirable_one_does():
    loss, _ = kto(KTO_LOGPROBS, KTO_REF, ~DESIRABLE, point(0.0), desirable_weight=1.0)
    mirrored, _ = kto(KTO_REF, KTO_LOGPROBS, DESIRABLE, point(0.0), desirable_weight=1.0)
    torch.testing.assert_close(loss, mirrored)


def test_kto_gradients_are_those_of_finite_differences():
    inputs = (KTO_LOGPROBS.clone().requires_grad_(),)
    assert torch.autograd.gradcheck(lambda p: kto(p, KTO_REF, DESIRABLE, point(0.3))[0], inputs)


def test_no_row_gives_no_loss_and_infinite_rewards_are_no_nan():
    empty = torch.zeros(0)
    assert kto(empty, empty, torch.zeros(0, dtype=torch.bool), torch.zeros(()))[0].shape == (0,)
    far = torch.tensor([1e30, -torch.inf, torch.inf], requires_grad=True)
    losses, _ = kto(far, torch.zeros(3), DESIRABLE, torch.zeros(()))
    assert losses.tolist() == [0.0, 0.0, 1.0]
    losses.sum().backward()
    assert far.grad.tolist() == [0.0, 0.0, 0.0]
