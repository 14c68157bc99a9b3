import pytest
import torch
from pydantic import ValidationError

from stages.rewards.component import Cap, Component

BODY = {"value": {"kind": "answer"}, "weight": 1.0, "normalise": {"kind": "none"}}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-1.0, 1.0, [-1.0, 0.5, 1.0]), (None, 1.0, [-3.0, 0.5, 1.0]), (-1.0, None, [-1.0, 0.5, 3.0])],
)
def test_a_cap_bounds_either_side(low, high, expected):
    component = Component(**BODY, cap={"low": low, "high": high})
    assert component.capped(torch.tensor([-3.0, 0.5, 3.0])).tolist() == expected


def test_without_a_cap_values_are_as_found():
    assert Component(**BODY, cap=None).capped(torch.tensor([-9.0])).tolist() == [-9.0]


@pytest.mark.parametrize(("low", "high"), [(None, None), (1.0, 1.0), (2.0, 1.0)])
def test_a_cap_that_bounds_nothing_or_all_is_refused(low, high):
    with pytest.raises(ValidationError):
        Cap(low=low, high=high)
