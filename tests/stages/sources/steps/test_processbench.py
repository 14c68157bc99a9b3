from pathlib import Path

import pytest

from stages.records.problems import BadRow
from stages.records.steps import RawSteps
from stages.sources.quarantine import RejectedError
from stages.sources.steps import catalogue, processbench

FILES = Path(__file__).parents[5] / "shared/data/processbench"
ROW = {"id": "gsm8k-0", "problem": "2+2?", "steps": ["a", "b", "c"], "label": 1,
       "final_answer_correct": True}  # fmt: skip
TABLE_2 = {  # erroneous, correct; and of the erroneous those with a right final answer
    "gsm8k": (207, 193, 7),
    "math": (594, 406, 94),
    "olympiadbench": (661, 339, 161),
    "omnimath": (759, 241, 259),
}


def read(change: dict[str, object]) -> RawSteps:
    (found,) = processbench.solutions(ROW | change, 4)
    return found


def test_steps_are_right_before_the_first_error_and_unlabelled_after_it():
    found = read({})
    assert found.labels == [1.0, 0.0, None]
    assert found.true_labels == [True, False, False]
    assert (found.id, found.line, found.question, found.correct) == ("gsm8k-0", 4, "2+2?", True)
    assert (found.steps, found.finished) == (["a", "b", "c"], True)
    assert read({"label": 0}).labels == [0.0, None, None]
    assert read({"label": 2}).labels == [1.0, 1.0, 0.0]
    assert read({"label": -1}).labels == [1.0, 1.0, 1.0]
    assert read({"label": -1}).true_labels == [True, True, True]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"label": 3}, "no label"),
        ({"label": -2}, "no label"),
        ({"label": True}, "no label"),
        ({"label": None}, "no label"),
        ({"steps": []}, "no steps"),
        ({"steps": "a"}, "no steps"),
        ({"steps": ["a", " "]}, "empty steps"),
        ({"steps": ["a", 2]}, "wrong type"),
        ({"problem": ""}, "empty problem"),
        ({"final_answer_correct": "yes"}, "wrong type"),
    ],
)
def test_a_bad_row_is_refused(change, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        read(change)


@pytest.mark.skipif(not FILES.is_dir(), reason="ProcessBench is not at ../shared/data/processbench")
@pytest.mark.parametrize("subset", TABLE_2)
def test_the_counts_are_those_of_the_paper(subset):
    rows = list(catalogue.solutions(FILES / f"{subset}.json.gz", processbench.Config(
        kind="processbench")))  # fmt: skip
    assert not any(isinstance(row, BadRow) for row in rows)
    found = [raw for row in rows for raw in row]
    wrong = [raw for raw in found if 0.0 in raw.labels]
    assert (len(wrong), len(found) - len(wrong), sum(raw.correct for raw in wrong)) == TABLE_2[
        subset
    ]
    assert all(raw.correct for raw in found if 0.0 not in raw.labels)
