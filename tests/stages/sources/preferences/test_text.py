import pytest

from stages.sources.preferences import text
from stages.sources.preferences.columns import Columns
from stages.sources.quarantine import RejectedError

COLUMNS = Columns(prompt="prompt", chosen="chosen", rejected="rejected", probability="label")
ROW = {"prompt": "2+2?\n", "chosen": "4", "rejected": " 5", "label": 0.75}


def test_prompt_and_answers_are_taken_as_they_are():
    found = text.pair(ROW, COLUMNS, 3)
    assert (found.plain_prompt, found.plain_lead) == ("2+2?\n", "")
    assert (found.chosen, found.rejected, found.probability) == ("4", " 5", 0.75)
    assert found.turns[0].content == "2+2?"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": ""}, "no common prompt"),
        ({"prompt": None}, "no common prompt"),
        ({"prompt": 3}, "wrong type"),
        ({"chosen": None}, "empty chosen"),
        ({"label": "yes"}, "no probability"),
        ({"label": 1.5}, "no probability"),
        ({"label": float("nan")}, "no probability"),
        ({"label": None}, "no probability"),
        ({"label": 0.5}, "tie"),
    ],
)
def test_a_bad_field_is_refused(change, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        text.pair(ROW | change, COLUMNS, 1)
