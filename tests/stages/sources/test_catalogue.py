import json
from dataclasses import replace
from itertools import islice

import pytest
from pydantic import TypeAdapter, ValidationError

from stages.records.problems import BadRow, Problem
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
    first = list(catalogue.read_problems(config, 0))
    assert len(first) == 20
    assert all(isinstance(row, Problem) for row in first)
    assert list(islice(catalogue.read_problems(config, 0), 20)) == first
    assert list(catalogue.read_problems(config, 1)) != first


def test_an_unknown_kind_is_an_error_that_lists_those_there_are():
    with pytest.raises(ValidationError, match="'word_problems', 'gsm8k', 'json_lines', 'hub'"):
        ADAPTER.validate_python(WORDS | {"kind": "math"})


def test_every_source_has_a_licence():
    assert ADAPTER.validate_python(WORDS).licence.startswith("Apache-2.0")
    mine = {"kind": "json_lines", "path": "data/raw/mine.jsonl", "licence": "CC0-1.0"}
    assert ADAPTER.validate_python(mine).licence == "CC0-1.0"


def test_a_rejected_problem_is_found_again_in_its_file(tmp_path):
    problem = Problem(id="a", question="?", answer="1", solution=None, split="test", line=1)
    (tmp_path / "test.jsonl.gz").touch()
    folder = {"kind": "gsm8k", "path": str(tmp_path), "revision": None, "licence": "MIT"}
    hub = {
        "kind": "hub",
        "path": "a/b",
        "name": None,
        "revision": None,
        "train_split": "train",
        "test_split": "validation",
        "columns": {"question": "q", "answer": "a", "solution": None, "id": None},
        "licence": "MIT",
    }
    mine = {"kind": "json_lines", "path": "data/raw/mine.jsonl", "licence": "CC0-1.0"}
    expected = [
        (WORDS, "generated"),
        (folder, "test.jsonl.gz"),
        (folder | {"path": "openai/gsm8k"}, "test"),
        (mine, "mine.jsonl"),
        (hub, "validation"),
    ]
    for config, file in expected:
        screened = catalogue.ScreenedSource(source=ADAPTER.validate_python(config), num_rows=1)
        screened.reject([(problem, "it is none")])
        assert [row.file for row in screened.bad] == [file]


def test_math_is_a_source_whose_gold_answer_stands_in_its_solution(tmp_path):
    folder = tmp_path / "math"
    folder.mkdir()
    boxed = {"a": r"\frac{1}{2}", "b": r"\text{(C)}", "c": r"5.4 \text{ cents}", "d": "204_5"}
    lines = [
        json.dumps({"problem": f"What is {one}?", "solution": rf"So $\boxed{{{answer}}}$, we see."})
        for one, answer in boxed.items()
    ]
    (folder / "train.jsonl").write_text("\n".join([*lines, '{"problem": "?", "solution": "7"}']))
    source = ADAPTER.validate_python(
        {
            "kind": "hub",
            "path": str(folder),
            "name": None,
            "revision": None,
            "train_split": "train",
            "test_split": None,
            "columns": {
                "question": "problem",
                "answer": "solution",
                "solution": "solution",
                "id": None,
            },
            "licence": "MIT",
        }
    )
    screened = catalogue.screen_rows(source, catalogue.read_problems(source, 0))
    assert [problem.answer for problem in screened.problems] == [*boxed.values(), "7"]


MIXTURE = MixtureConfig(judge=0.5, critique=0.0, revise=0.5, max_prompt_tokens=192)


def test_other_tasks_are_made_from_generated_problems_only():
    config = ADAPTER.validate_python(WORDS)
    problems = list(catalogue.read_problems(config, 0))
    assert {row.task for row in catalogue.make_exchanges(config, MIXTURE, problems, 0)} == {
        "judge",
        "revise",
    }
    assert catalogue.make_exchanges(config, None, problems, 0) == []


def prepared(mixture: MixtureConfig | None) -> catalogue.PreparationConfig:
    mine = {"kind": "json_lines", "path": "data/raw/mine.jsonl", "licence": "CC0-1.0"}
    limits = {"max_prompt_tokens": 9, "max_completion_tokens": 9, "max_bad_share": 0.1}
    shares = {"preference": 0.1, "dev": 0.1, "test": 0.1}
    return catalogue.PreparationConfig.model_validate(
        {"source": mine, "prompt_template": "{question}", "shares": shares, **limits}
        | {"mixture": mixture}
    )


def test_a_source_that_cannot_make_other_tasks_must_not_be_asked_for_them():
    assert prepared(None).max_message_tokens == 0
    prepared(MIXTURE.model_copy(update={"judge": 0.0, "revise": 0.0}))
    with pytest.raises(ValueError, match=r"expected null with the source 'json_lines'.*judge=0\.5"):
        prepared(MIXTURE)


FOLDER = catalogue.problem_files.Gsm8k(kind="gsm8k", path=".", revision=None, licence="MIT")
GOOD = Problem(id="a", question="2+2?", answer="4", solution=None, split="train", line=1)


def sort(*rows: Problem | BadRow) -> catalogue.ScreenedSource:
    return catalogue.screen_rows(FOLDER, rows)


def test_the_second_row_with_an_id_is_rejected():
    screened = sort(GOOD, replace(GOOD, line=2))
    assert screened.problems == [GOOD]
    assert screened.bad[0].reason == "duplicate id: 'a' is also the id of line 1"
    assert (screened.bad[0].file, screened.bad[0].line) == ("train.jsonl", 2)


@pytest.mark.parametrize("answer", ["nan", "four", "1,23", "4 or 5", "9" * 5000])
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


def test_a_question_repeated_within_a_split_is_kept():
    assert len(sort(GOOD, replace(GOOD, id="b")).problems) == 2


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
