import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from stages.rewards.component import Cap, Component, Normalise

VALUES = torch.tensor([1.0, 3.0, 5.0, 5.0])
GROUPS = [0, 0, 1, 1]


def of(**config):
    return TypeAdapter(Normalise).validate_python(config)(VALUES, GROUPS).tolist()


def test_none_changes_nothing():
    assert of(kind="none") == VALUES.tolist()


def test_over_the_batch():
    """Mean 3.5, squares 6.25 + 0.25 + 2.25 + 2.25 = 11, over 3: standard deviation 1.9149."""
    assert of(kind="batch", ddof=1, eps=1e-9) == pytest.approx(
        [-1.3056, -0.2611, 0.7833, 0.7833], abs=1e-4
    )


def test_over_the_group():
    """1 and 3: mean 2, standard deviation 1 with n. Equal values have no spread: exactly 0."""
    found = of(kind="group", ddof=0, eps=1e-9)
    assert found[:2] == pytest.approx([-1.0, 1.0])
    assert found[2:] == [0.0, 0.0]


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
