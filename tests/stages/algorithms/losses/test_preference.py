"""What holds for every loss of pairs, whatever its formula."""

import functools

import pytest
import torch

from stages.algorithms.losses.preference import cpo, dpo, hinge, ipo, orpo, robust_dpo, simpo

CHOSEN = torch.tensor([-4.0, -9.0, -2.0], dtype=torch.float64)
REJECTED = torch.tensor([-6.0, -7.0, -2.5], dtype=torch.float64)
CHOSEN_REF = torch.tensor([-5.0, -8.0, -2.0], dtype=torch.float64)
REJECTED_REF = torch.tensor([-5.0, -8.0, -2.5], dtype=torch.float64)
LENGTHS = torch.tensor([2, 5, 3]), torch.tensor([4, 3, 3])

WITH_REFERENCE = {
    "dpo": functools.partial(dpo.dpo_loss, beta=0.3, label_smoothing=0.0),
    "cdpo": functools.partial(dpo.dpo_loss, beta=0.3, label_smoothing=0.1),
    "robust": functools.partial(robust_dpo.robust_dpo_loss, beta=0.3, flip_rate=0.1),
    "robust, no flips": functools.partial(robust_dpo.robust_dpo_loss, beta=0.3, flip_rate=0.0),
    "ipo_sum": functools.partial(ipo.ipo_sum_loss, beta=0.3),
    "ipo_mean": lambda *four: ipo.ipo_mean_loss(*four, *LENGTHS, beta=0.3),
    "hinge": functools.partial(hinge.hinge_loss, beta=0.3),
}
WITHOUT = {
    "simpo": lambda c, r: simpo.simpo_loss(c, r, *LENGTHS, beta=2.0, gamma=0.5),
    "orpo": lambda c, r: orpo.orpo_loss(c, r, *LENGTHS, lam=0.3),
    "orpo, no odds": lambda c, r: orpo.orpo_loss(c, r, *LENGTHS, lam=0.0),
    "cpo": lambda c, r: cpo.cpo_loss(c, r, LENGTHS[0], beta=0.3, alpha=0.5),
    "cpo, no likelihood": lambda c, r: cpo.cpo_loss(c, r, LENGTHS[0], beta=0.3, alpha=0.0),
}
ALL = WITH_REFERENCE | {
    name: lambda c, r, _c, _r, loss=loss: loss(c, r) for name, loss in WITHOUT.items()
}


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
    found, found_margins = ALL[name](others, REJECTED, CHOSEN_REF, REJECTED_REF)
    assert found[2] == losses[2]
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
            for found in (losses, margins, low.grad, other.grad):
                assert found is None or not found.isnan().any()


@pytest.mark.parametrize("name", sorted(WITH_REFERENCE.keys() - {"ipo_mean"}))
def test_no_pair_gives_no_loss(name):
    empty = torch.zeros(0)
    losses, margins = WITH_REFERENCE[name](empty, empty, empty, empty)
    assert losses.shape == margins.shape == (0,)
