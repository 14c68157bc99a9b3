import pydantic
import pytest
import torch
from pydantic import TypeAdapter

from stages.loops.choices.pair_logprobs import PairLogprobs
from stages.loops.choices.preference_loss import KtoLoss, PreferenceLoss

ADAPTER = TypeAdapter(PreferenceLoss)
# h = (-4 + 5) - (-6 + 5) = 2; per token -2 and -1.5; log-ratios per token 0.5 and -0.25.
PAIRS = PairLogprobs(
    chosen=torch.tensor([-4.0]),
    rejected=torch.tensor([-6.0]),
    chosen_ref=torch.tensor([-5.0]),
    rejected_ref=torch.tensor([-5.0]),
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
    losses, margins = ADAPTER.validate_python(numbers)(PAIRS)
    assert losses.item() == pytest.approx(loss, abs=2e-6)
    assert margins.item() == pytest.approx(margin, abs=2e-6)


def test_kto_takes_rows_with_a_verdict_and_a_reference_point():
    loss = ADAPTER.validate_python(
        {"kind": "kto", "beta": 0.5, "desirable_weight": 2.0, "undesirable_weight": 3.0}
    )
    assert isinstance(loss, KtoLoss)
    logprobs, verdicts = torch.tensor([-3.0, -3.0]), torch.tensor([True, False])
    losses, rewards = loss(logprobs, torch.tensor([-5.0, -5.0]), verdicts, torch.tensor(2.0))
    # Rewards 1 less 0.5 (2): at the reference point, half of each weight.
    assert losses.tolist() == [1.0, 1.5]
    assert rewards.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ({"kind": "dpo", "beta": 0.5}, "does not match any of the expected tags"),
        ({"kind": "sigmoid", "beta": 0.5}, "label_smoothing"),
        ({"kind": "hinge", "beta": 0.5, "gamma": 1.0}, "gamma"),
        ({"kind": "hinge", "beta": 0.0}, "greater than 0"),
        ({"kind": "robust", "beta": 0.5, "flip_rate": 0.5}, "less than 0.5"),
    ],
)
def test_a_wrong_kind_or_number_is_refused(numbers, problem):
    with pytest.raises(pydantic.ValidationError, match=problem):
        ADAPTER.validate_python(numbers)
