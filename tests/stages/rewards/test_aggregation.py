import pytest

from stages.rewards import aggregation
from stages.rewards.aggregation import Aggregation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("null\n", None),
        ('{"best_of": "min", "weighted": "last"}', Aggregation(best_of="min", weighted="last")),
    ],
)
def test_a_choice_and_none(tmp_path, text, expected):
    path = tmp_path / "choice.json"
    path.write_text(text)
    assert aggregation.read(path) == expected


@pytest.mark.parametrize(
    "text", ["[]", '{"best_of": "min"}', '{"best_of": "min", "weighted": "x"}']
)
def test_anything_else_is_refused(tmp_path, text):
    path = tmp_path / "choice.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="each one of last, min, product, mean"):
        aggregation.read(path)
