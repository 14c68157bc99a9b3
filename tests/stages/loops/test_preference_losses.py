import math

import pydantic
import pytest
import torch
from tiny_rollouts import make_pairs

from stages.algorithms.losses.preference_losses import PairLogprobs, kto_loss
from stages.loops.preference import (
    PreferencePreset,
    compute_pair_losses,
    expected_loss,
    make_pair_groups,
)

loss_of = PreferencePreset.model_validate
# h = (-4 + 5) - (-6 + 5) = 2; per token -2 and -1.5; log-ratios per token 0.5 and -0.25.
PAIRS = PairLogprobs(
    chosen_logprobs=torch.tensor([-4.0]),
    rejected_logprobs=torch.tensor([-6.0]),
    chosen_ref_logprobs=torch.tensor([-5.0]),
    rejected_ref_logprobs=torch.tensor([-5.0]),
    chosen_lengths=torch.tensor([2]),
    rejected_lengths=torch.tensor([4]),
)


@pytest.mark.parametrize(
    ("numbers", "loss", "margin"),
    [
        # -ln sigmoid(1) = 0.313262
        ({"kind": "sigmoid", "beta": 0.5, "label_smoothing": 0.0}, 0.313262, 1.0),
        ({"kind": "sigmoid", "beta": 0.5, "label_smoothing": 0.2}, 0.513262, 1.0),
        ({"kind": "robust", "beta": 0.5, "flip_rate": 0.25}, 0.313262 - 0.5, 1.0),
        ({"kind": "ipo_sum", "beta": 0.5}, 1.0, 1.0),  # (2 - 1)^2
        ({"kind": "ipo_mean", "beta": 0.5}, 0.0625, 0.375),  # (0.75 - 1)^2
        ({"kind": "hinge", "beta": 0.25}, 0.5, 0.5),
        # 2 (-2 + 1.5) = -1; -ln sigmoid(-1 - 1) = 2.126928
        ({"kind": "simpo", "beta": 2.0, "gamma": 1.0}, 2.126928, -1.0),
        # Odds e^-2 / (1 - e^-2) = 0.156518 and e^-1.5 / (1 - e^-1.5) = 0.287217:
        # ln 0.544946 = -0.607069; 2 - 0.5 ln(0.544946 / 1.544946) = 2 + 0.521029.
        ({"kind": "orpo", "lam": 0.5}, 2.521029, -0.607069),
        # 0.5 (2) = 1; 0.313262 + 0.1 (4 / 2)
        ({"kind": "cpo", "beta": 0.5, "alpha": 0.1}, 0.513262, 1.0),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_each_kind_gives_its_numbers_and_the_pairs_to_its_loss(numbers, loss, margin):
    losses, margins = compute_pair_losses(loss_of(numbers), PAIRS)
    assert losses.item() == pytest.approx(loss, abs=2e-6)
    assert margins.item() == pytest.approx(margin, abs=2e-6)


def test_kto_takes_rows_with_a_verdict_and_a_reference_point():
    loss = loss_of({"kind": "kto", "beta": 0.5, "desirable_weight": 2.0, "undesirable_weight": 3.0})
    logprobs, verdicts = torch.tensor([-3.0, -3.0]), torch.tensor([True, False])
    losses, rewards = kto_loss(
        logprobs=logprobs,
        ref_logprobs=torch.tensor([-5.0, -5.0]),
        desirable=verdicts,
        reference_point=torch.tensor(2.0),
        **loss.hyperparameters(),
    )
    # Rewards 1 less 0.5 (2): at the reference point, half of each weight.
    assert losses.tolist() == [1.0, 1.5]
    assert rewards.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ({"kind": "dpo", "beta": 0.5}, "Input should be 'sigmoid', 'robust'"),
        ({"kind": "sigmoid", "flip_rate": 0.1}, "flip_rate is of no use with kind sigmoid"),
        ({"beta": 0.5}, "kind"),
        ({"kind": "hinge", "beta": 0.5, "gamma": 1.0}, "gamma"),
        ({"kind": "hinge", "beta": 0.0}, "greater than 0"),
        ({"kind": "robust", "beta": 0.5, "flip_rate": 0.5}, "less than 0.5"),
    ],
)
def test_a_wrong_kind_or_number_is_refused(numbers, problem):
    with pytest.raises(pydantic.ValidationError, match=problem):
        loss_of(numbers)


DPO = loss_of({"kind": "sigmoid", "beta": 1.0, "label_smoothing": 0.0})


def pairs(margin: float, chosen: float = -2.0) -> PairLogprobs:
    """One pair whose log-ratio margin is `margin`."""
    logprobs = torch.tensor([chosen], dtype=torch.float64)
    return PairLogprobs(
        (logprobs + margin).requires_grad_(),
        logprobs.clone().requires_grad_(),
        logprobs,
        logprobs,
        torch.tensor([3]),
        torch.tensor([3]),
    )


def label(probability: float) -> torch.Tensor:
    return torch.tensor([probability], dtype=torch.float64)


def test_by_hand():
    # sigmoid(log 3) is 3/4: 0.6 * -log 0.75 + 0.4 * -log 0.25
    losses, margins = expected_loss(DPO, pairs(math.log(3)), label(0.6))
    assert losses.item() == pytest.approx(0.6 * 0.2876821 + 0.4 * 1.3862944, abs=1e-6)
    assert margins.item() == pytest.approx(math.log(3))


def test_the_gradient_vanishes_where_the_model_says_what_the_label_says():
    pair = pairs(math.log(3))
    expected_loss(DPO, pair, label(0.75))[0].sum().backward()
    assert pair.chosen_logprobs.grad is not None
    assert pair.chosen_logprobs.grad.item() == pytest.approx(0.0, abs=1e-12)


def test_it_is_conservative_dpo_with_a_smoothing_for_each_pair():
    smoothed = loss_of({"kind": "sigmoid", "beta": 1.0, "label_smoothing": 0.2})
    result, _ = expected_loss(DPO, pairs(0.7), label(0.8))
    torch.testing.assert_close(result, compute_pair_losses(smoothed, pairs(0.7))[0])


@pytest.mark.parametrize(
    "loss", [DPO, loss_of({"kind": "hinge", "beta": 0.5})], ids=["dpo", "hinge"]
)
def test_a_label_and_its_complement_are_the_pair_turned_round(loss):
    there, _ = expected_loss(loss, pairs(0.7), label(0.3))
    forth, _ = expected_loss(loss, pairs(-0.7), label(0.7))
    torch.testing.assert_close(there, forth)


def test_a_sure_pair_among_others_costs_what_it_costs_alone():
    """ORPO's odds of a completion of probability 1 are infinite the wrong way round."""
    loss = loss_of({"kind": "orpo", "lam": 0.1})
    alone, _ = compute_pair_losses(loss, pairs(-0.5))
    both = PairLogprobs(*map(torch.cat, zip(pairs(-0.5), pairs(0.2), strict=True)))
    result, _ = expected_loss(loss, both, torch.tensor([1.0, 0.6], dtype=torch.float64))
    assert result[0].item() == alone.item()


def test_a_pair_is_a_group_numbered_twice_and_twice_plus_one():
    pairs = make_pairs(4)
    groups = make_pair_groups(pairs, [2, 0])
    assert [group.indices for group in groups] == [[4, 5], [0, 1]]
    assert groups[0].prompt_ids == pairs[2].prompt_ids
    assert groups[0].completions == [pairs[2].chosen_ids, pairs[2].rejected_ids]
