"""Rows of files -> what is read in them: the cases of problems.yaml, pairs.yaml and steps.yaml, and
public formats (formats.yaml).

| key of a case | meaning |
|---|---|
| `it` | its name |
| `rows` | the rows of the file; `repeat: n`: the first of them n times |
| `of`, `each` | a row, and changes of it, each with what is read: a file of one row each |
| `extend` | a row with one list, to which a change is appended |
| `of`, `marks` | a row, and columns for which it is left out, unless they are ignored |
| `of`, `unread` | a row, and columns for which the file is refused, unless they are ignored |
| `with` | options: of the source, or columns of pairs, or the form of steps |
| `gives` | what of each result is to be compared; of a pair `[chosen, rejected, probability]` |
| `bad` | line -> kind of the reason, and words in it; no other row is bad |
| `refused` | words in the message of the ValueError |
| `report` | attributes of the SourceReport |

In `each` a text is a reason (as in `bad`), `same` what the row without the change gives.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from stages.config import PRESETS_PATH, read_yaml
from stages.records.problems import BadRow, Problem, ToolCall, Turn
from stages.records.steps import RawSteps
from stages.rewards import answer_checker
from stages.sources import conversations, preference_files, problem_files, step_files
from stages.sources.containers import Place
from stages.sources.preference_files import PairColumns
from stages.sources.problem_files import FileSource, SourceReport
from stages.sources.quarantine import HARMLESS, FileLimits

Case = dict[str, Any]
ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared/data"
STRICT = FileLimits(licence="", max_tokens=1, max_bad_share=0.0, max_long_share=0.0)


def list_cases(kind: str) -> Iterator[Any]:
    for case in YAML(typ="safe").load(Path(__file__).with_name(f"{kind}.yaml")):
        changes = [("each", *pair) for pair in case.get("each", ())]
        changes += [
            (key, change, None) for key in ("marks", "unread") for change in case.get(key, ())
        ]
        for number, (key, change, expected) in enumerate(changes):
            row, start = {**case.get("of", {})}, case.get("extend")
            row |= {name: [*rows, change] for name, rows in start.items()} if start else change
            yield pytest.param(
                {"key": key, "of": case.get("of"), "with": case.get("with", {}), "row": row,
                 "change": change, "expected": expected}, id=f"{case['it']}-{number}",
            )  # fmt: skip
        if "rows" in case:
            yield pytest.param({"key": "rows", **case}, id=case["it"])


def read_rows(kind: str, rows: list[Any], options: Case, path: Path, ignore: list[str]) -> Any:
    """What is read in the rows, and the report."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(lines, encoding="utf-8")
    return read_path(kind, path, options | {"ignore": [*options.get("ignore", ()), *ignore]})


def read_path(kind: str, path: Path, options: Case) -> Any:
    report, more = SourceReport(path=path.name), {"where": options.get("where")}
    if kind == "problems":
        source = FileSource.model_validate(options | {"path": str(path)})
        return list(problem_files.read_problems(source, report)), report
    place, ignore = Place(path), options.get("ignore", ())
    if kind == "pairs":
        columns = PairColumns.model_validate(options.get("columns", {}))
        read: Any = preference_files.read_preferences
        return list(read(place, columns, ignore, report=report, **more)), report
    form = options["form"]
    form = TypeAdapter(step_files.Format).validate_python(
        read_yaml(ROOT / PRESETS_PATH)[form]["format"] if isinstance(form, str) else form
    )
    parsed: Any = step_files.read_solutions(place, form, ignore, report=report, **more)
    return [item for row in parsed for item in (row if isinstance(row, list) else [row])], report


def show_call(call: ToolCall) -> str:
    return " ".join(filter(None, [call.name, call.arguments, call.id]))


def show_turn(turn: Turn) -> list[str]:
    answers = [f"of {show_call(turn.answers)}"] if turn.answers else []
    calls = [show_call(call) for call in turn.calls]
    return [turn.role, turn.content, *calls, *answers, *["context"] * (not turn.is_imitated)]


def show(result: Any, report: SourceReport) -> Any:
    """A result as cases write it."""
    values = {name: getattr(result, name) for name in type(result).__dataclass_fields__}
    values["unused"] = sorted(report.unused)
    if not isinstance(result, RawSteps):
        values["turns"] = result.turns and [show_turn(turn) for turn in result.turns]
    if isinstance(result, Problem):
        values["tools"] = None if result.tools is None else json.loads(result.tools)
        if (reply := result.reply) is not None:
            values["reply"] = {
                "content": reply.content, "reasoning": reply.reasoning,
                "calls": [show_call(call) for call in reply.calls],
            }  # fmt: skip
    return values


def select(shown: Any, expected: Any) -> Any:
    """Of what is shown the part that a case compares."""
    if isinstance(expected, list):
        names = ("chosen", "rejected", "probability", "completion", "desirable")
        return [shown[name] for name in names if name in shown][: max(2, len(expected))]
    if not isinstance(expected, dict) or not isinstance(shown, dict):
        return shown
    return {key: select(shown[key], value) if isinstance(value, dict) else shown[key]
            for key, value in expected.items()}  # fmt: skip


def check_reason(reason: str, expected: str) -> None:
    """The kind, or the kind and words after it."""
    kind = reason.partition(":")[0]
    assert expected == kind or (expected.startswith(f"{kind} ") and
                                expected.removeprefix(kind).strip() in reason), reason  # fmt: skip


def check_refusal(error: ValueError, words: list[str]) -> None:
    assert [word for word in words if word not in str(error)] == [], str(error)


@pytest.mark.parametrize(
    ("kind", "case"),
    [pytest.param(kind, *case.values, id=f"{kind}-{case.id}")
     for kind in ("problems", "pairs", "steps") for case in list_cases(kind)],
)  # fmt: skip
def test_rows_of_a_file_are(kind: str, case: Case, tmp_path: Path) -> None:
    def read(*rows: Any, ignore: list[str] = []) -> Any:  # noqa: B006
        return read_rows(kind, [*rows], case.get("with", {}), tmp_path / "mine.jsonl", ignore)

    if case["key"] in ("marks", "unread"):
        check_dropped(case, read)
        return
    rows, expected = case.get("rows", [case.get("row")]), case.get("expected", case)
    rows = rows[:1] * case.get("repeat", 1) + rows[1:]
    if isinstance(expected, dict) and "refused" in expected:
        with pytest.raises(ValueError, match="") as error:
            read(*rows)
        check_refusal(error.value, expected["refused"])
        return
    results, report = read(*rows)
    bad = {row.line: row.reason for row in results if isinstance(row, BadRow)}
    good = [show(row, report) for row in results if not isinstance(row, BadRow)]
    if case["key"] == "rows":
        wanted = case.get("gives", [])
        good = good[-len(wanted) or len(good) :] if "repeat" in case else good
        assert bad.keys() == case.get("bad", {}).keys(), [*bad.values()]
        for line, reason in case.get("bad", {}).items():
            check_reason(bad[line], reason)
        for name, value in case.get("report", {}).items():
            assert getattr(report, name) == value
    elif expected == "same":
        before, unchanged = read(case["of"])
        wanted = [show(row, unchanged) for row in before]
        good, wanted = [[without_lines(row) for row in items] for items in (good, wanted)]
    elif isinstance(expected, str):
        assert len(bad) == 1, results
        check_reason(bad[1], expected)
        wanted = []
    else:
        assert bad == {}
        wanted = [expected]
    assert len(good) == len(wanted), results
    assert [select(item, expected) for item, expected in zip(good, wanted, strict=True)] == wanted


def without_lines(shown: Case) -> Case:
    return {key: value for key, value in shown.items() if key not in ("unused", "line", "id")}


def check_dropped(case: Case, read: Any) -> None:
    """A row is left out, or a file refused, by the name of a column; not where it is ignored."""
    names = [*case["change"]]
    (plain, *others), _ = read(case["of"])
    assert not others
    kept, _ = read(case["row"], ignore=names)
    assert [row for row in kept if isinstance(row, BadRow)] == []
    report = SourceReport(path="")
    assert without_lines(show(kept[0], report)) == without_lines(show(plain, report))
    if case["key"] == "unread":
        with pytest.raises(ValueError, match="row 2") as error:
            read(case["of"], case["row"])
        check_refusal(error.value, [f"ignore: [{', '.join(names)}]"])
        return
    ((bad,), _) = read(case["row"])
    assert isinstance(bad, BadRow)
    assert f"ignore: [{', '.join(names)}]" in bad.reason
    assert bad.reason.partition(":")[0] in HARMLESS
    assert STRICT.left_out("people", [bad], [], 2) == [bad]


# --- public formats

FORMATS = YAML(typ="safe").load(Path(__file__).with_name("formats.yaml"))
BOOKS = FORMATS["books"]


def fill(expected: Any, number: int) -> Any:
    """What a case expects of this row."""
    a, b, letter = BOOKS["numbers"][number]
    numbers = {"i": number, "a": a, "b": b, "sum": a + b, "more": a + b + 1}
    texts = {"count": BOOKS["counts"][number % 2], **BOOKS["texts"], "letter": letter}
    filled = json.dumps(expected)
    for name, value in (texts | numbers).items():
        filled = filled.replace(f"<{name}>", json.dumps(str(value))[1:-1])
    return json.loads(filled)


def count(results: list[Any]) -> dict[str, int]:
    """What `counts` of a case may name."""
    rows = [row for row in results if not isinstance(row, BadRow)]
    labels = [label for row in rows for label in getattr(row, "labels", ()) if label is not None]
    solutions = [row for row in rows if isinstance(row, RawSteps)]
    wrong = [row for row in solutions if 0.0 in row.labels]
    return {
        "rows": len(rows), "bad": len(results) - len(rows), "labels": len(labels),
        "right": labels.count(1.0),
        "solutions": sum(getattr(row, "solution", None) is not None for row in rows),
        "tests": sum(getattr(row, "split", None) == "test" for row in rows),
        "erroneous": len(wrong), "lucky": sum(bool(row.correct) for row in wrong),
        "cut": sum("\n" in "".join(row.steps) for row in solutions),
        "parts": sum(len(step_files.cut_steps(row, "\n").steps) for row in solutions),
    }  # fmt: skip


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
@pytest.mark.parametrize(
    ("kind", "path", "case"),
    [pytest.param(kind, SHARED / case.get("in", "formats") / name, case, id=f"{kind}-{name}")
     for case in FORMATS["files"] for name in case["files"]
     for kind in ([case.get("kind", "problems")] if isinstance(case.get("kind", ""), str)
                  else case["kind"])],
)  # fmt: skip
def test_a_file_of_a_public_format_is(kind: str, path: Path, case: Case) -> None:
    if "refused" in case:
        with pytest.raises(ValueError, match="") as error:
            read_path(kind, path, {})
        check_refusal(error.value, case["refused"])
    expected, first, counts = case.get("gives", []), case.get("first", {}), case.get("counts", {})
    if not (expected or first or counts):
        return
    results, report = read_path(kind, path, case.get("with", {}))
    counted = count(results)
    assert counted == counted | {"bad": 0} | counts
    wanted = [fill(row, number) for number, row in enumerate(
        expected if isinstance(expected, list) else [expected] * 6)]  # fmt: skip
    assert len(results) == len(wanted) or not wanted
    for row, want in zip(results, wanted, strict=False):
        shown = show(row, report)
        if "gold" in want:
            shown["gold"] = answer_checker.read_gold(shown["answer"])
        assert select(shown, want) == want
    if isinstance(first, str):
        assert first in str(results[0])
    else:
        assert select(show(results[0], report), first) == fill(first, 0)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
@pytest.mark.parametrize("folder", ["formats", "formats_by_content"])
def test_every_file_of_a_public_format_is_read(folder: str) -> None:
    names = {name for case in FORMATS["files"] if case.get("in", "formats") == folder
             for name in case["files"]}  # fmt: skip
    assert {path.name for path in (SHARED / folder).iterdir()} - {"README.md"} == names


@pytest.mark.parametrize("part", ["USER: ", "### Instruction:\n", " \n"])
def test_a_long_prompt_is_looked_through_once(part: str) -> None:
    start = time.process_time()
    assert conversations.read_text(f"{part * 20_000}?", "prompt", may_end_empty=False)
    assert time.process_time() - start < 5  # with a search from each beginning more than 20
