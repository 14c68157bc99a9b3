from pathlib import Path

import pytest

from stages.records.steps import RawSteps
from stages.sources import prm800k, step_files
from stages.sources.quarantine import RejectedError

SAMPLE = Path(__file__).parents[4] / "shared/data/prm_format_samples/prm800k_sample6.jsonl"


def config(**changes: str) -> prm800k.Prm800kConfig:
    choices = {"neutral": "right", "alternatives": "drop", "shared_steps": "once"}
    return prm800k.Prm800kConfig.model_validate({"kind": "prm800k", **choices, **changes})


def step(*ratings: int | None, chosen: int | None = 0, human: str | None = None) -> dict:
    return {
        "completions": [
            {"text": f"{index}: {rating}", "rating": rating, "flagged": False}
            for index, rating in enumerate(ratings)
        ],
        "human_completion": human and {"text": human, "rating": None},
        "chosen_completion": None if human else chosen,
    }


def read(*steps: object, finish: str = "solution", **changes: str) -> list[RawSteps]:
    row = {"question": {"problem": "p"}, "label": {"steps": list(steps), "finish_reason": finish}}
    return config(**changes).solutions(row, 3)


def test_the_chosen_completion_is_followed_or_the_persons_own_which_has_no_label():
    (path,) = read(step(-1, 1, chosen=1), step(-1, human="mine"), step(0))
    assert path.steps == ["1: 1", "mine", "0: 0"]
    assert path.labels == [1.0, None, 1.0]
    assert (path.question, path.line, path.num_completions) == ("p", 3, [0, 0, 0])


def test_a_neutral_rating_counts_as_the_rule_says():
    for rule, label in (("right", 1.0), ("wrong", 0.0), ("unlabelled", None)):
        (path,) = read(step(1), step(0), neutral=rule)
        assert path.labels == [1.0, label]


def test_after_the_first_wrong_step_nothing_is_labelled():
    path, *others = read(step(1), step(-1), step(1, -1), alternatives="rows")
    assert path.labels == [1.0, 0.0, None]
    assert others == []


def test_without_a_choice_the_path_ends_with_the_models_own_step():
    (path,) = read(step(1), step(-1, 1, chosen=None), finish="found_error")
    assert (path.steps, path.labels) == (["0: 1", "0: -1"], [1.0, 0.0])
    (same,) = read(step(1), step(-1, 1, chosen=None), {"completions": None})
    assert same.labels == path.labels


def test_an_alternative_is_the_path_up_to_it_and_itself():
    path, first, second = read(step(1), step(-1, 1, 0, chosen=1), alternatives="rows")
    assert path.steps == ["0: 1", "1: 1"]
    assert (first.steps, first.labels) == (["0: 1", "0: -1"], [None, 0.0])
    assert (second.steps, second.labels) == (["0: 1", "2: 0"], [None, 1.0])
    again = read(step(1), step(-1, 1, chosen=1), alternatives="rows", shared_steps="repeat")
    assert again[1].labels == [1.0, 0.0]


def test_each_rating_is_counted_once_or_as_often_as_it_is_shared():
    steps = [step(1), step(1, -1), step(1, 0, -1)]
    once = read(*steps, alternatives="rows")
    assert sum(label is not None for row in once for label in row.labels) == 6
    repeat = read(*steps, alternatives="rows", shared_steps="repeat")
    assert sum(label is not None for row in repeat for label in row.labels) == 3 + 2 + 3 + 3


def test_a_solution_is_finished_where_it_states_an_answer():
    end = {"completions": [{"text": "4\n\n# Answer\n\n4", "rating": 1}], "chosen_completion": 0}
    (path,) = read(step(1), end)
    assert (path.finished, path.correct) == (True, True)
    (path,) = read(step(1), end, finish="give_up")
    assert (path.finished, path.correct) == (True, None)
    (path,) = read(step(1))
    assert (path.finished, path.correct) == (False, None)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([step(1, chosen=1)], "no completion"),
        ([step(1, chosen=-1)], "no completion"),
        ([step(1, chosen=True)], "wrong type"),
        ([step(2)], "no rating"),
        ([step(True)], "no rating"),
        ([step([1])], "no rating"),
        ([step(1, chosen=None), step(1)], "no path"),
        ([{"completions": None}], "no labels"),
        ([step(None)], "no labels"),
        ([], "no steps"),
        (["a"], "wrong type"),
        ([{"completions": ["a"], "chosen_completion": 0}], "wrong type"),
        ([{"completions": [{"text": "", "rating": 1}], "chosen_completion": 0}], "empty text"),
    ],
)
def test_a_bad_row_is_refused(steps, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        read(*steps)


def test_a_bad_problem_is_refused():
    with pytest.raises(RejectedError, match=r"^bad problem: "):
        read(step(1), finish="bad_problem")


@pytest.mark.skipif(not SAMPLE.is_file(), reason="no ../shared/data/prm_format_samples")
def test_the_real_rows():
    paths = [row[0] for row in step_files.read_solutions(SAMPLE, config())]
    ones = [1.0] * 7
    assert (
        [path.labels for path in paths]
        == [
            [1.0, None, 1.0, 1.0, 1.0, 1.0],  # the second step is the person's own
            [*ones[:6], 0.0],  # the second is neutral; the error ends the path
            ones[:5],
            ones,
            [*ones, None],
            [1.0] * 12,
        ]
    )
    assert [path.correct for path in paths] == [True, None, True, True, None, True]
    rows = list(step_files.read_solutions(SAMPLE, config(alternatives="rows")))
    assert [len(row) for row in rows] == [10, 4, 7, 7, 7, 1]
