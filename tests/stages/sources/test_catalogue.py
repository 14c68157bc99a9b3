from itertools import islice

import pytest
from pydantic import TypeAdapter, ValidationError

from stages.records.problems import Problem
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
    first = list(catalogue.problems(config, 0))
    assert len(first) == 20
    assert all(isinstance(row, Problem) for row in first)
    assert list(islice(catalogue.problems(config, 0), 20)) == first
    assert list(catalogue.problems(config, 1)) != first


def test_an_unknown_kind_is_an_error_that_lists_those_there_are():
    with pytest.raises(ValidationError, match="'word_problems', 'gsm8k', 'json_lines', 'hub'"):
        ADAPTER.validate_python(WORDS | {"kind": "math"})


def test_every_source_has_a_licence():
    assert catalogue.licence(ADAPTER.validate_python(WORDS)).startswith("Apache-2.0")
    mine = {"kind": "json_lines", "path": "data/raw/mine.jsonl", "licence": "CC0-1.0"}
    assert catalogue.licence(ADAPTER.validate_python(mine)) == "CC0-1.0"


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
        assert catalogue.file_of(ADAPTER.validate_python(config), problem) == file


MIXTURE = MixtureConfig(judge=0.5, critique=0.0, revise=0.5, max_prompt_tokens=192)


def test_other_tasks_are_made_from_generated_problems_only():
    config = ADAPTER.validate_python(WORDS)
    problems = list(catalogue.problems(config, 0))
    assert {row.task for row in catalogue.exchanges(config, MIXTURE, problems, 0)} == {
        "judge",
        "revise",
    }
    assert catalogue.exchanges(config, None, problems, 0) == []


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
