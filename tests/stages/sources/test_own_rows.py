"""Rows of a generator of the user's: read as those of a file, the same again, or refused."""

import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

import stages.sources.own as folder
from stages.sources import catalogue
from stages.sources.catalogue import SourceConfig

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))
ROWS = TABLES["rows"]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A file `mine.py` in the folder of own sources, as far as imports can tell."""
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    yield (tmp_path / "mine.py").write_text
    sys.modules.pop("stages.sources.own.mine", None)


def read(seed=0, **keys):
    source = TypeAdapter(SourceConfig).validate_python({"kind": "own/mine", **keys})
    return catalogue.read_source(source, seed)


def test_the_rows_are_read_screened_and_described_as_those_of_a_file(write):
    repeated = ROWS + '        if number == 7: yield {"question": "What is it?", "answer": "n/a"}\n'
    write(repeated)
    screened = read(licence="MIT")
    assert (screened.num_rows, len(screened.problems)) == (301, 300)
    assert [row.reason.partition(":")[0] for row in screened.bad] == ["placeholder"]
    first = screened.problems[0]
    assert first.question.startswith("What is 49 plus 97, number 0?")
    assert (first.answer, first.line, first.file) == ("146", 1, "stages/sources/own/mine.py")
    (report,) = screened.reports
    assert (report.path, report.form, report.rows) == ("own/mine", "problems", {"unsplit": 301})
    assert read(seed=1).problems[0].question != first.question


def test_limit_where_and_columns_are_those_of_a_file(write):
    write(ROWS.replace('"answer"', '"level": number % 2, "gold"'))
    columns = {"question": "question", "answer": "gold"}
    screened = read(columns=columns, where={"level": 1}, limit=5)
    assert [problem.line for problem in screened.problems] == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("case", TABLES["refused"], ids=lambda case: case["it"])
def test_what_is_no_source_is_refused(case, write):
    assert case["old"] in ROWS
    write(ROWS.replace(case["old"], case["new"], 1))
    with pytest.raises((ValueError, RuntimeError), match=case["says"]):
        read()


@pytest.mark.parametrize("key", [{"kind": "own/Mine"}, {"path": "data/raw/x"}, {"test_split": "a"}])
def test_keys_of_files_and_names_that_are_none_are_refused(key):
    with pytest.raises(ValidationError, match="own/<file>"):
        TypeAdapter(SourceConfig).validate_python({"kind": "own/mine", **key})
