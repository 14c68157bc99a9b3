"""Published files, as far as they lie in ../shared/data, against their papers and pages."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from stages.records.problems import BadRow, Problem, ToolCall, Turn
from stages.sources import problem_files, step_files, tool_calls
from stages.sources.problem_files import FileSource, SourceReport
from stages.sources.quarantine import RejectedError

DATA = Path(__file__).parents[4] / "shared/data"
STEPS = DATA / "prm_format_samples"
pytestmark = pytest.mark.skipif(not STEPS.is_dir(), reason="no ../shared/data")


def read(name: str, **options: Any) -> tuple[list[Problem], list[str], SourceReport]:
    report = SourceReport(path=name)
    source = FileSource.model_validate({"path": str(DATA / name)} | options)
    rows = list(problem_files.read_problems(source, report))
    bad = [row.reason.partition(":")[0] for row in rows if isinstance(row, BadRow)]
    return [row for row in rows if isinstance(row, Problem)], bad, report


def test_gsm8k_is_read_as_it_is_published():
    problems, bad, report = read("gsm8k")
    assert (report.rows, bad) == ({"train": 7473, "test": 1319}, [])
    first = problems[0]
    assert (first.split, first.id) == ("train", "train-000001")
    assert first.question.startswith("Natalia sold clips to 48 of her friends in April")
    assert str(first.solution).splitlines()[0] == "Natalia sold 48/2 = 24 clips in May."


def test_svamp_has_its_body_in_the_question():
    problems, bad, report = read("svamp/SVAMP.json.gz")
    assert (len(problems), bad, report.columns["question"]) == (1000, [], "{Body} {Question}")


def test_prompts_alone_are_read_out_of_a_table():
    options = {"columns": {"user": "prompt"}, "ignore": ["label", "type", "focus", "note"]}
    problems, bad, report = read("xstest/xstest_v2_prompts.csv.gz", **options)
    assert (len(problems), bad, report.form) == (450, [], "prompts")


def test_the_better_answers_of_transcripts_may_be_imitated():
    options = {"columns": {"messages": "chosen"}, "ignore": ["rejected"]}
    problems, bad, _ = read("hh_rlhf_harmless/test.jsonl.gz", **options)
    assert len(problems) + len(bad) == 2312
    assert {*bad} <= {"empty turn", "no question", "no transcript"}
    assert all(row.turns and row.turns[-1].role == "user" for row in problems)
    assert sum(row.solution is not None for row in problems) > 2250


TABLE_2 = {  # of the paper: erroneous, correct; and of the erroneous those with a right answer
    "gsm8k": (207, 193, 7), "math": (594, 406, 94), "olympiadbench": (661, 339, 161),
    "omnimath": (759, 241, 259),
}  # fmt: skip
CUTS = {"gsm8k": (77, 272, 2669), "math": (419, 2159, 11409)}


@pytest.mark.parametrize("subset", TABLE_2)
def test_processbench_has_the_counts_of_its_paper(subset):
    form = step_files.ProcessBench(kind="processbench")
    rows = list(step_files.read_solutions(DATA / f"processbench/{subset}.json.gz", form))
    whole = [raw for row in rows if not isinstance(row, BadRow) for raw in row]
    wrong = [raw for raw in whole if 0.0 in raw.labels]
    right_answers = sum(bool(raw.correct) for raw in wrong)
    assert (len(wrong), len(whole) - len(wrong), right_answers) == TABLE_2[subset]
    assert all(raw.correct for raw in whole if 0.0 not in raw.labels)
    parts = [step_files.cut_steps(raw, "\n") for raw in whole]
    for raw, cut in zip(whole, parts, strict=True):
        assert "\n".join(cut.steps) == "\n".join(raw.steps)
        for name in ("labels", "true_labels"):
            before, after = getattr(raw, name), getattr(cut, name)
            assert [x for x in after if x is not None] == [x for x in before if x is not None]
    counts = (sum(raw != cut for raw, cut in zip(whole, parts, strict=True)),
              sum("\n" in text for raw in whole for text in raw.steps),
              sum(len(cut.steps) for cut in parts))  # fmt: skip
    assert counts == CUTS.get(subset, counts)


def solutions(name: str, **form: Any) -> list[Any]:
    parsed: Any = TypeAdapter(step_files.Format).validate_python(form)
    return list(step_files.read_solutions(STEPS / name, parsed))


def test_rows_of_math_shepherd_are_read():
    parsed = solutions("math_shepherd_sample7.jsonl", kind="math_shepherd", num_completions=8)
    rows = [raw for row in parsed for raw in row]
    assert [len(raw.steps) for raw in rows] == [5, 3, 2, 5, 5, 2, 3]
    assert [sum(raw.labels) for raw in rows] == [4, 0, 0, 0, 1, 0, 0]
    assert rows[0].question.startswith("Janet pays $40/hour")
    assert rows[0].steps[0].startswith("Step 1: Janet spends 3 hours + 5 hours = <<3+5=8>>8 hours")
    assert (rows[0].labels, rows[0].correct) == ([1.0, 1.0, 1.0, 1.0, 0.0], False)


def test_rows_of_prm800k_are_read():
    form = {"kind": "prm800k", "neutral": "right", "alternatives": "drop", "shared_steps": "once"}
    paths = [row[0] for row in solutions("prm800k_sample6.jsonl", **form)]
    ones = [1.0] * 7
    # The second step of the first is the person's; the error ends the second path.
    assert [path.labels for path in paths] == [
        [1.0, None, *ones[:4]], [*ones[:6], 0.0], ones[:5], ones, [*ones, None], [1.0] * 12,
    ]  # fmt: skip
    assert [path.correct for path in paths] == [True, None, True, True, None, True]
    rows = solutions("prm800k_sample6.jsonl", **form | {"alternatives": "rows"})
    assert [len(row) for row in rows] == [10, 4, 7, 7, 7, 1]


def test_rows_of_math_aps_are_read():
    def count(name: str) -> list[tuple[int, int]]:
        """Solutions, and labels that count, of each row."""
        rows = solutions(name, kind="math_aps", labels="soft", hard_above=0.0, num_completions=32,
                         shared_steps="once")  # fmt: skip
        return [(len(row), sum(label is not None for raw in row for label in raw.labels))
                for row in rows]  # fmt: skip

    # Of each distinct text but the root, one label: 86, 10 and 39 of 90, 13 and 42 estimates.
    assert count("math_aps_sample3.jsonl") == [(81, 85), (7, 9), (36, 38)]

    def count_below(node: dict[str, Any]) -> int:
        return sum(1 + count_below(child) for child in node["children"])

    lines = (STEPS / "math_aps_tree_sample.jsonl").read_text("utf-8").splitlines()
    below = [count_below(json.loads(line)["reasoning_steps"]) for line in lines]
    assert count("math_aps_tree_sample.jsonl") == list(zip((137, 85, 20), below, strict=True))


ADD, SUM = ToolCall("add", '{"x": 1}', "1"), ToolCall("sum", '{"x": 2}', "2")
LINKED = [
    # calls, what their results say of them, the calls that these are of
    ([ADD, SUM], [None, None], [ADD, SUM]),
    ([ADD, SUM], [ToolCall("", "{}", "2"), ToolCall("", "{}", "1")], [SUM, ADD]),
    ([ADD, SUM], [ToolCall("sum", "{}"), ToolCall("add", "{}")], [SUM, ADD]),
    ([ADD, SUM], [ToolCall("sum", "{}"), None], [SUM, ADD]),
    ([ADD, ADD], [ToolCall("add", "{}"), ToolCall("add", "{}")], [ADD, ADD]),
    ([ADD, SUM], [ToolCall("other", "{}")], [ToolCall("other", "{}")]),
    ([ADD], [None, None], [ADD, None]),
    ([ToolCall("add", "{}")], [ToolCall("", "{}", "7")], [ToolCall("add", "{}", "7")]),
    ([ADD, SUM], [ToolCall("", "{}", "9")], "1, 2"),
]


@pytest.mark.parametrize(("calls", "results", "expected"), LINKED)
def test_a_result_is_of_the_call_with_its_id_else_its_name_else_the_next(calls, results, expected):
    turns = [Turn("user", "?"), Turn("assistant", "", calls=tuple(calls))]
    turns += [Turn("tool", "3", answers=result) for result in results]
    if isinstance(expected, str):
        with pytest.raises(RejectedError, match=expected):
            tool_calls.link_results(turns)
        return
    assert [turn.answers for turn in tool_calls.link_results(turns)[2:]] == expected
