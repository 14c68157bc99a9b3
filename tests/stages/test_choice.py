from typing import Annotated

import pydantic
import pytest
from pydantic import Field

from stages.choice import Choice, OneOf
from stages.config import Params


def clip(ratio: float, *, low: float, high: float) -> float:
    return min(max(ratio, 1 - low), 1 + high)


def cap(ratio: float, *, high: float) -> float:
    return min(ratio, high)


def weighted(ratio: float, beta: float) -> float:
    return beta * ratio


class Config(Params):
    ratio: Annotated[
        Choice,
        OneOf(
            {"clip": clip, "cap": cap, "weighted": weighted},
            given=("ratio", "beta"),
            bounds={"low": Field(ge=0, lt=1), "high": Field(ge=0), "cap.high": Field(gt=1)},
            number="cap",
        ),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"kind": "clip", "low": 0.2, "high": 0.25}, 1.25),
        ({"kind": "cap", "high": 1.5}, 1.5),
        (1.5, 1.5),
        ({"kind": "weighted"}, 6.0),
        ("weighted", 6.0),
    ],
)
def test_a_kind_calls_its_function_with_its_own_keywords_and_those_it_takes(content, expected):
    choice = Config(ratio=content).ratio
    assert choice(ratio=2.0, beta=3.0) == expected


def test_its_keywords_and_the_names_it_takes_can_be_read():
    choice = Config(ratio={"kind": "clip", "low": 0.2, "high": 0.25}).ratio
    assert choice.kind == "clip"
    assert choice.own == {"low": 0.2, "high": 0.25}
    assert choice.given == {"ratio"}
    assert Config(ratio="weighted").ratio.given == {"ratio", "beta"}
    assert choice.model_dump() == {"kind": "clip", "low": 0.2, "high": 0.25}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"kind": "klip"}, "'klip' found using 'kind' does not match any of the expected tags"),
        ("klip", "'clip', 'cap', 'weighted'"),
        ({"kind": "clip", "low": 0.2}, r"ratio\.clip\.high\n  Field required"),
        ({"kind": "cap", "hgh": 2.0}, r"ratio\.cap\.hgh\n  Extra inputs are not permitted"),
        ({"kind": "weighted", "beta": 2.0}, r"ratio\.weighted\.beta\n  Extra inputs"),
        ({"kind": "clip", "low": "0.2", "high": 0.2}, r"low\n  Input should be a valid number"),
        ({"kind": "clip", "low": 1.0, "high": 0.2}, "should be less than 1"),
        ({"kind": "clip", "low": 0.0, "high": 0.9}, None),
        ({"kind": "cap", "high": 0.9}, "should be greater than 1"),
        ({"low": 0.2}, "Unable to extract tag"),
    ],
)
def test_a_wrong_kind_keyword_or_number_is_refused(content, told):
    if told is None:
        Config(ratio=content)
        return
    with pytest.raises(pydantic.ValidationError, match=told):
        Config(ratio=content)
