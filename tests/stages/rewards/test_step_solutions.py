"""Solutions in steps: where a step ends, which are labelled, and the truth of each step."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_rows import completion, prompt
from ruamel.yaml import YAML

from stages.records.steps import PrefixCount, split_steps
from stages.rewards import step_solutions
from stages.rewards.step_solutions import label_solutions, true_step_labels

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

# --- where a step ends

VOCAB = ["", "a", "b", "\n", "\n\n", ".\n\n", "\nb", " ", "\n\nSo"]
END = 0


def decode(ids):
    return "".join(VOCAB[i] for i in ids)


@pytest.mark.parametrize(("ids", "separator", "expected"), TABLES["ends"])
def test_a_step_ends_with_the_token_that_completes_the_separator(ids, separator, expected):
    assert split_steps(ids, decode, separator) == expected


@given(st.lists(st.integers(0, len(VOCAB) - 1)), st.sampled_from(["\n", "\n\n", "a"]))
def test_steps_joined_are_the_completion_and_none_is_empty(ids, separator):
    steps = split_steps(ids, decode, separator)
    assert [i for step in steps for i in step] == ids
    # Only a completion without any text has a step without text.
    assert all(decode(step).strip() for step in steps) or len(steps) == 1


# --- the truth of a step

QUESTIONS = TABLES["questions"]
PLUS = QUESTIONS["plus"]


@pytest.mark.parametrize(("question", "steps", "expected"), TABLES["truths"])
def test_a_step_is_right_while_the_solution_is(question, steps, expected):
    result = true_step_labels(QUESTIONS[question], steps.split(";"))
    assert result == [digit == "1" for digit in expected]


def test_the_truth_is_known_of_generated_questions_alone():
    assert true_step_labels("What is 3 + 4?", ["3 + 4 = 7", "#### 7"]) is None
    assert true_step_labels(PLUS, []) == []


# --- the solutions of a pool, and their labels

PROMPT = replace(prompt(gold="9"), question=PLUS, prompt=PLUS, prompt_ids=[7])
SOLUTIONS = {name: "\n".join(row["steps"]) for name, row in TABLES["solutions"].items()}


def letters(ids):
    return "".join(map(chr, ids)).rstrip("$")


def pool(*texts, cut=()):
    return [
        completion(text, index, ids=[ord(character) for character in f"{text}$"], cut=index in cut)
        for index, text in enumerate(texts)
    ]


def choose(rows, number=9, of=PROMPT):
    return step_solutions.choose_solutions([(of, rows)], letters, "\n", number)


@pytest.mark.parametrize("row", TABLES["solutions"].values(), ids=TABLES["solutions"])
def test_a_solution_has_its_steps_their_truth_and_its_verdict(row):
    solutions = pool("\n".join(row["steps"]))
    ((_, parsed),) = choose(solutions)
    assert {name: getattr(parsed, name) for name in row} == row
    ((_, parsed),) = choose(solutions, of=replace(PROMPT, question="3 + 6?"))
    assert (parsed.correct, parsed.true_labels) == (row["correct"], None)


def test_the_first_different_solutions_that_ended_are_chosen():
    names = "right", "mistaken", "right", "guess", "mistaken", "right", "repaired"
    rows = pool(*(SOLUTIONS[name] for name in names), cut={1, 3})
    assert [item.row.index for item in choose(rows)] == [0, 4, 6]
    assert [item.row.index for item in choose(rows, 2)] == [0, 4]
    finished = step_solutions.finished_solutions([(PROMPT, rows)], letters, "\n")
    assert [item.row.index for item in finished] == [0, 2, 4, 5, 6]
    rest = step_solutions.unlabelled_rows(finished, [item.row for item in choose(rows, 2)])
    assert [row.index for row in rest] == [2, 5, 6]


def count(ids, right, of="a"):
    return PrefixCount(
        id=of, prefix_ids=list(ids), num_completions=8, num_right=right, low=0.0, high=1.0,
        generated_tokens=0,
    )  # fmt: skip


@pytest.mark.parametrize(("text", "num_right", "hard", "soft"), TABLES["labels"])
def test_a_hard_label_is_any_and_a_soft_one_the_share_of_right_completions(
    text, num_right, hard, soft
):
    (solution,) = choose(pool(SOLUTIONS[text]))
    counts = [count(ids, n) for ids, n in zip(solution.prefixes(), num_right, strict=True)]
    others = [count([1], 5), *(count(ids, 4, of="b") for ids in solution.prefixes())]
    for kind, expected in (("hard", hard), ("soft", soft)):
        ((row, used),) = label_solutions([solution], [*others, *counts[::-1]], kind)
        assert (row.labels, row.source) == (expected, "math_shepherd")
        assert row.num_completions == [8] * len(counts) + [0]
        assert used == counts
        changed = {"labels": [None] * len(expected), "num_completions": [0] * len(expected)}
        assert replace(row, source="none", **changed) == solution.row


def test_labels_without_counts_are_the_truth_which_must_be_known():
    (solution,) = choose(pool(SOLUTIONS["mistaken"]))
    ((row, _),) = label_solutions([solution], None, "hard")
    assert (row.labels, row.source, row.num_completions) == ([1.0, 0.0, 0.0], "truth", [0] * 3)
    unknown = solution._replace(row=replace(solution.row, true_labels=None))
    with pytest.raises(ValueError, match=r"'a': num_completions"):
        label_solutions([unknown], None, "hard")
