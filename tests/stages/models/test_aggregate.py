import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from stages.models.aggregate import Aggregate

# Mean 3, population variance 4.
SCORES = torch.tensor([[1.0], [5.0]])


def read(**words):
    return TypeAdapter(Aggregate).validate_python(words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"kind": "mean"}, 3.0),
        ({"kind": "min"}, 1.0),
        ({"kind": "mean_minus_std", "k": 0.5}, 2.0),
        ({"kind": "mean_minus_variance", "k": 0.5}, 1.0),
    ],
)
def test_a_kind_is_its_formula(words, expected):
    assert read(**words)(SCORES).tolist() == [expected]


@pytest.mark.parametrize(
    "words", [{"kind": "max"}, {"kind": "mean", "k": 1.0}, {"kind": "mean_minus_std", "k": -1.0}]
)
def test_anything_else_is_refused(words):
    with pytest.raises(ValidationError):
        read(**words)
