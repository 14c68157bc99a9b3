import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from stages.records.problems import BadRow, Problem, Turn
from stages.sources import catalogue
from stages.sources.feedback_tasks import MixtureConfig

ADAPTER = TypeAdapter(catalogue.SourceConfig)
WORDS = {
    "kind": "word_problems",
    "num_problems": 20,
    "max_value": 199,
    "guess_share": 0.3,
    "slip_share": 0.2,
    "misconception_share": 0.2,
}


def test_the_kind_picks_the_source_and_the_seed_its_problems():
    config = ADAPTER.validate_python(WORDS)
    first = catalogue.read_source(config, 0).problems
    assert len(first) == 20
    assert catalogue.read_source(config, 0).problems == first
    assert catalogue.read_source(config, 1).problems != first


def test_an_unknown_kind_is_an_error_that_lists_those_there_are():
    with pytest.raises(ValidationError, match="'word_problems', 'reasoning_gym', 'files'"):
        ADAPTER.validate_python(WORDS | {"kind": "math"})


def test_a_source_without_a_kind_is_files_and_a_list_is_several():
    mine = {"path": "a.jsonl", "licence": "CC0-1.0"}
    several = ADAPTER.validate_python([mine, {"path": ["b.csv", "c.csv"], "licence": "MIT"}])
    assert catalogue.name_of(several) == "a.jsonl, b.csv, c.csv"
    assert catalogue.licence_of(several) == "CC0-1.0, MIT"
    assert catalogue.licence_of(ADAPTER.validate_python({"path": "a.jsonl"})) is None
    generated = catalogue.licence_of(ADAPTER.validate_python(WORDS))
    assert generated is not None
    assert generated.startswith("Apache-2.0")


def write(folder: Path, name: str, *rows: object) -> dict[str, Any]:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"path": str(path)}


def test_several_sources_are_one_with_ids_of_their_own(tmp_path):
    row = {"id": "1", "question": "2+2?", "answer": "4"}
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}
    sources = [write(tmp_path, "a.jsonl", row), write(tmp_path, "b.jsonl", chat)]
    screened = catalogue.read_source(ADAPTER.validate_python(sources), 0)
    assert [(row.id, row.answer, row.solution) for row in screened.problems] == [
        ("1-1", "4", None), ("2-b-000001", None, "Ho"),
    ]  # fmt: skip
    assert [report.form for report in screened.reports] == ["problems", "conversations"]


def test_solutions_that_contradict_the_gold_answers_are_refused_with_examples(tmp_path):
    rows = [{"problem": f"{n} + 1?", "level": "5", "solution": f"It is \\boxed{{{n + 1}}}"}
            for n in range(20)]  # fmt: skip
    source = write(tmp_path, "math.jsonl", *rows)
    screened = catalogue.read_source(ADAPTER.validate_python(source), 0)
    assert screened.agreement == 1.0
    wrong = source | {"columns": {"question": "problem", "answer": "level", "solution": "solution"}}
    with pytest.raises(ValueError, match=r"(?s)19 of 20 solutions.*line 1: the answer is '5'.*'1'"):
        catalogue.read_source(ADAPTER.validate_python(wrong), 0)


def test_math_is_a_source_whose_gold_answer_stands_in_its_solution(tmp_path):
    boxed = {"a": r"\frac{1}{2}", "b": r"\text{(C)}", "c": r"5.4 \text{ cents}", "d": "204_5"}
    rows = [{"problem": f"What is {item}?", "solution": rf"So $\boxed{{{answer}}}$, we see."}
            for item, answer in boxed.items()]  # fmt: skip
    source = ADAPTER.validate_python(write(tmp_path, "train.jsonl", *rows))
    problems = catalogue.read_source(source, 0).problems
    assert [problem.answer for problem in problems] == [*boxed.values()]


def test_a_near_copy_of_a_test_question_is_kept_out_of_training_and_no_bad_row():
    words = "Anna walks from the school to the old mill behind the river and counts {} herons"
    test = replace(GOOD, id="t", question=words.format("seven"), split="test")
    copy = replace(GOOD, id="c", question=f"Hear this: {words.format('seven')}!")
    splits = {"train": [GOOD, copy], "preference": [GOOD], "dev": [GOOD], "test": [test]}
    screened = catalogue.ScreenedSource(num_rows=5)
    kept = catalogue.exclude_near_copies(splits, screened)
    assert kept == splits | {"train": [GOOD]}
    assert [row.reason for row in screened.bad] == ["near copy: of test question 't'"]
    screened.check_share(0.0)
    with pytest.raises(ValueError, match="every problem of train is a near copy"):
        catalogue.exclude_near_copies(splits | {"train": [copy]}, screened)


MIXTURE = MixtureConfig(judge=0.5, critique=0.0, revise=0.5, max_prompt_tokens=192)


def test_other_tasks_are_made_from_generated_problems_only():
    config = ADAPTER.validate_python(WORDS)
    problems = catalogue.read_source(config, 0).problems
    assert {row.task for row in catalogue.make_exchanges(config, MIXTURE, problems, 0)} == {
        "judge",
        "revise",
    }
    assert catalogue.make_exchanges(config, None, problems, 0) == []


def prepared(mixture: MixtureConfig | None) -> catalogue.PreparationConfig:
    mine = {"path": "data/raw/mine.jsonl"}
    limits = {"max_prompt_tokens": 9, "max_completion_tokens": 9, "max_bad_share": 0.1}
    shares = {"preference": 0.1, "dev": 0.1, "test": 0.1}
    return catalogue.PreparationConfig.model_validate(
        {"source": mine, "prompt_template": "{question}", "shares": shares, **limits}
        | {"mixture": mixture}
    )


def test_a_source_that_cannot_make_other_tasks_must_not_be_asked_for_them():
    assert prepared(None).max_message_tokens == 0
    prepared(MIXTURE.model_copy(update={"judge": 0.0, "revise": 0.0}))
    with pytest.raises(
        ValueError, match=r"expected null with problems of another source.*judge=0\.5"
    ):
        prepared(MIXTURE)


GOOD = Problem(
    id="a", question="2+2?", answer="4", solution=None, split="train", line=1, file="train.jsonl"
)


def sort(*rows: Problem | BadRow) -> catalogue.ScreenedSource:
    return catalogue.screen_rows(rows)


def test_the_second_row_with_an_id_is_rejected():
    screened = sort(GOOD, replace(GOOD, question="2+3?", answer="5", line=2, file="b.jsonl"))
    assert screened.problems == [GOOD]
    assert screened.bad[0].reason == (
        "duplicate id: 'a' is also the id of line 1 of train.jsonl: give each row an id of its "
        "own, or leave ids out: ignore: [id], and no `id` in columns"
    )
    assert (screened.bad[0].file, screened.bad[0].line) == ("b.jsonl", 2)


def test_two_files_with_ids_from_0_are_read_without_them_as_the_reason_says(tmp_path):
    for name, start in (("a", 0), ("b", 10)):
        rows = [{"id": n, "question": f"{start + n}+1?", "answer": "4"} for n in range(3)]
        write(tmp_path, f"{name}.jsonl", *rows)
    source = ADAPTER.validate_python({"path": str(tmp_path)})
    assert len(catalogue.read_source(source, 0).bad) == 3
    source = ADAPTER.validate_python({"path": str(tmp_path), "ignore": ["id"]})
    screened = catalogue.read_source(source, 0)
    assert (len(screened.problems), screened.bad) == (6, [])


SAID = (Turn("system", "Be brief."), Turn("user", "2+2?"))


@pytest.mark.parametrize(
    ("change", "is_repeated"),
    [
        ({}, True), ({"id": "b"}, True), ({"question": " 2+2?\n", "id": "b"}, True),
        ({"answer": "so 4\n#### 4", "id": "b"}, True),
        ({"solution": "#### 4", "id": "b"}, False), ({"answer": None, "id": "b"}, False),
        ({"turns": SAID, "id": "b"}, False), ({"tools": "[]", "id": "b"}, False),
        ({"reply": Turn("assistant", "4", reasoning="two and two"), "id": "b"}, False),
    ],
)  # fmt: skip
def test_a_row_that_says_the_same_as_another_is_repeated(change, is_repeated):
    second = replace(GOOD, line=7, file="b.jsonl", **change)
    screened = sort(GOOD, second)
    assert screened.problems == ([GOOD] if is_repeated else [GOOD, second])
    reasons = ["repeated: the same row as line 1 of train.jsonl"] if is_repeated else []
    assert [row.reason for row in screened.bad] == reasons


def test_a_row_repeated_under_another_weight_of_a_turn_is_another_row():
    talk = Turn("user", "Hi"), Turn("assistant", "Ho"), Turn("user", "2+2?")
    other = talk[0], replace(talk[1], is_imitated=False), talk[2]
    rows = [replace(GOOD, id=name, turns=turns) for name, turns in (("a", talk), ("b", other))]
    assert sort(*rows).problems == rows


def test_repeated_rows_say_nothing_against_the_others_and_are_warned_of():
    rows = [replace(GOOD, id=str(n), line=n) for n in range(10)]
    screened = sort(*rows)
    screened.check_share(0.0)
    assert [*screened.warn_of_left_out(0.5)] == [
        "9 of 10 rows are left out (9 repeated): see quarantine.jsonl"
    ]
    assert [*screened.warn_of_left_out(0.9)] == []


def test_a_question_counts_once_in_dev_and_test_and_keeps_its_solutions_in_training():
    rows = [
        replace(GOOD, id=str(n), line=n, question=question, solution=solution)
        for n, (question, solution) in enumerate([
            ("What is 2+2?", "#### 4"), ("what is  2+2?", "So #### 4"), ("2+2?", "#### 4"),
        ])
    ]  # fmt: skip
    splits = {"train": rows, "preference": rows, "dev": rows, "test": rows}
    screened = catalogue.ScreenedSource(num_rows=3)
    kept = catalogue.exclude_repeated_questions(splits, screened)
    assert kept == splits | {"dev": [rows[0], rows[2]], "test": [rows[0], rows[2]]}
    assert [(row.line, row.reason) for row in screened.bad] == [
        (1, f"repeated question: the same as of line 0 of train.jsonl, in the {split} split")
        for split in ("dev", "test")
    ]
    screened.check_share(0.0)
    tools = [replace(rows[0], tools=name) for name in ("a", "b")]
    assert catalogue.exclude_repeated_questions(splits | {"test": tools}, screened)["test"] == tools


def test_ids_that_begin_anew_in_the_test_split_lose_no_test_question():
    rows = [replace(GOOD, id=str(n), question=f"{n}+1?", line=n) for n in range(4)]
    tests = [replace(row, question=f"{row.question}!", split="test") for row in rows[:2]]
    other = replace(GOOD, id="test-1", question="2+2?")
    screened = sort(*rows, other, *tests)
    assert screened.bad == []
    assert [row.id for row in screened.problems] == [
        "0", "1", "2", "3", "test-1", "test-0", "test-test-1",
    ]  # fmt: skip
    assert [row.id for row in sort(*tests, *rows).problems][2:] == ["train-0", "train-1", "2", "3"]
    twice = sort(*tests, tests[1])
    assert [row.reason for row in twice.bad] == ["repeated: the same row as line 1 of train.jsonl"]


def test_a_source_knows_of_a_test_split_of_which_no_row_can_be_used(tmp_path):
    for name, question in (("train", "2+2?"), ("test", " ")):
        write(tmp_path, f"{name}.jsonl", {"question": question, "answer": "4"})
    screened = catalogue.read_source(ADAPTER.validate_python({"path": str(tmp_path)}), 0)
    assert screened.has_test
    assert [row.file for row in screened.problems] == ["train.jsonl"]
    assert sort(replace(GOOD, answer="nan", split="test")).has_test
    assert not sort(GOOD).has_test


@pytest.mark.parametrize("answer", ["nan", "four", "who can tell what it may be", "9" * 5000])
def test_an_answer_that_the_checker_cannot_read_is_rejected(answer):
    screened = sort(replace(GOOD, answer=answer))
    assert screened.problems == []
    assert screened.bad[0].reason.startswith("answer does not parse")


def test_an_answer_within_a_text_is_taken_out():
    assert sort(replace(GOOD, answer="half of 8\n#### 4")).problems == [GOOD]
    assert sort(replace(GOOD, answer=r"so \boxed{\frac{3}{4}}")).problems[0].answer == (
        r"\frac{3}{4}"
    )


def test_a_training_question_that_is_also_a_test_question_is_rejected_wherever_it_stands():
    test = replace(GOOD, id="t", question="  2+2? ", split="test")
    for rows in ((GOOD, test), (test, GOOD)):
        screened = sort(*rows)
        assert screened.problems == [test]
        assert screened.bad[0].reason.startswith("overlap")


def test_a_question_under_another_system_message_is_also_a_test_question():
    def ask(system: str, **fields: Any) -> Problem:
        turns = (Turn("system", system), Turn("user", GOOD.question))
        return replace(GOOD, turns=turns, question=f"{system}\n\nHuman: {GOOD.question}", **fields)

    test = ask("Be brief.", id="t", split="test")
    rows = GOOD, ask("Be exact.", id="b"), replace(GOOD, id="c", turns=(Turn("user", "2+2?"),))
    screened = sort(*rows, test)
    assert screened.problems == [test]
    assert [row.reason for row in screened.bad] == [
        "overlap: the question is also a test question"
    ] * 3


@pytest.mark.parametrize("split", ["train", "test"])
def test_of_a_question_with_several_gold_answers_nothing_is_kept(split):
    rows = [replace(GOOD, id=str(n), line=n, question=question, answer=answer, split=split)
            for n, (question, answer) in enumerate([
                ("2*7?", "14"), ("2*7? ", "15"), ("2*7?", "14.0"), ("1/2?", "0.5"), ("1/2?", "1/2"),
                ("1 or 2?", "1"), ("1 or 2?", "1 or 2"), ("2*7?", None), ("x?", "1"), ("X?", "2"),
            ])]  # fmt: skip
    tools = [replace(GOOD, id=name, answer=answer, split=split, tools=name)
             for name, answer in (("a", "4"), ("b", "5"))]  # fmt: skip
    screened = sort(*rows, *tools)
    assert screened.problems == rows[3:] + tools
    assert [row.line for row in screened.bad] == [0, 1, 2]
    assert {row.reason for row in screened.bad} == {
        "contradiction: the question has the gold answers '14' (train.jsonl, line 0) and '15' "
        "(train.jsonl, line 1): correct or delete the wrong row"
    }


def test_a_wrong_gold_answer_in_training_takes_no_test_question():
    test = replace(GOOD, id="t", split="test")
    assert sort(replace(GOOD, answer="5"), test).problems == [test]


def test_the_share_of_bad_rows_is_checked_over_all_rows():
    bad = BadRow(file="train.jsonl", line=9, reason="not JSON: x", content="{")
    screened = sort(GOOD, replace(GOOD, id="b"), replace(GOOD, id="c"), bad)
    screened.check_share(0.25)
    with pytest.raises(ValueError, match=r"1 of 4 rows .*1 not JSON.*24\.0%") as error:
        screened.check_share(0.24)
    assert "train.jsonl, line 9: not JSON: x" in str(error.value)
    assert "raise `data.max_bad_share`" in str(error.value)


def test_a_source_without_rows_is_refused():
    with pytest.raises(ValueError, match="no rows"):
        sort().check_share(0.5)
