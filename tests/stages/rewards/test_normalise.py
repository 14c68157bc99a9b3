import pytest
import torch
from pydantic import TypeAdapter

from stages.rewards.normalise import Normalise

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
