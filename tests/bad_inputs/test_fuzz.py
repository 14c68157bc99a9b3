"""Wrong values for every key of params.yaml, presets.yaml and the recipes: never a traceback.

Each is refused by the name of its key; what is absurd (10^400, 1e308, NaN, 300,000 letters) always
is, also in presets that no row uses. The commit chooses one in `FUZZ_SHARE` of the 18,000 values,
500 by default; FUZZ_SHARE=1 tries all (an hour).
"""

import datetime
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rotation
from bad_inputs import meeting
from bad_inputs.case import PARAMS, PRESETS
from bad_inputs.meeting import ROOT
from bad_inputs.test_bad_inputs import JARGON
from ruamel.yaml import YAML

from stages import plan

RECIPES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("stages/recipes/*.yaml"))
ABSURD = {
    "NaN": float("nan"), "infinity": float("inf"), "10^400": 10**400, "1e308": 1e308,
    "-1e308": -1e308, "1e-308": 1e-308, "300,000 letters": "x" * 300_000, "lists": [[1]],
    "deep": {"a": {"b": 1}}, "a number as a key": {1: 2},
}  # fmt: skip
WRONG = ABSURD | {
    "-1": -1, "0": 0, "10^12": 10**12, "true": True, "null": None, "a word": "nonsense",
    "no text": "", "no list": [], "no keys": {}, "a path above": "../..", "a root": "/etc/passwd",
    "control characters": "\x1b[2J\n", "a date": datetime.date(2020, 1, 1), "NUL": "a\0b",
}  # fmt: skip
SHARE = int(os.environ.get("FUZZ_SHARE", "500"))
Place = tuple[str | int, ...]


def load(path: str) -> Any:
    return YAML(typ="safe").load((ROOT / path).read_text(encoding="utf-8"))


def list_places(content: Any, place: Place = ()) -> Iterator[Place]:
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        yield (*place, key)
        if isinstance(value, dict | list):
            yield from list_places(value, (*place, key))


CASES = {
    f"{path} {'.'.join(map(str, place))}: {wrong}": (path, place, wrong)
    for path in (PARAMS, PRESETS, *RECIPES)
    for place in list_places(load(path))
    for wrong in WRONG
}


@pytest.fixture(scope="module", autouse=True)
def modules():
    with meeting.entry_points():
        yield


@pytest.mark.parametrize("case", rotation.part(CASES, SHARE))
def test_a_wrong_value_is_refused_by_its_key_or_is_right(case, tmp_path, monkeypatch):
    path, place, wrong = CASES[case]
    monkeypatch.chdir(tmp_path)
    meeting.repository()
    shutil.copytree(ROOT / "stages/recipes", "stages/recipes")
    content = load(path)
    *parents, key = place
    target = content
    for parent in parents:
        target = target[parent]
    target[key] = WRONG[wrong]
    with Path(path).open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)
    recipes = [Path(path)] if path in RECIPES else []
    _, problems = plan.check_plan([Path(PARAMS), *recipes])
    missing = "there is no file or folder data/raw"  # of people's preferences
    problems = [problem for problem in problems if missing not in problem or path == PARAMS]
    # Which options an environment takes, lists and objects among them, its class alone knows.
    is_option = "options" in place and wrong in ("lists", "deep")
    assert problems or wrong not in ABSURD or place[0] == "tables" or is_option
    names = [str(part) for part in place if isinstance(part, str)]
    # Where a table has lost its rows, `there is no policy ..` names it.
    lost = "there is no policy" if names[-1] == "policies" else names[-1]
    assert not problems or any(names[-1] in each or lost in each for each in problems), problems
    assert [problem for problem in problems if len(problem) >= 1000] == []
    assert [problem for problem in problems if not problem.isprintable()] == []
    assert [word for word in JARGON for problem in problems if word in problem] == []


@pytest.mark.parametrize("text", ["9" * 10_000, "[" * 10_000, "\ufeff{", "a: &a [*a]", "\x00"])
def test_a_file_that_yaml_cannot_take_is_named(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    meeting.repository()
    Path(PARAMS).write_text(f"seeds: {text}\n", encoding="utf-8")
    _, problems = plan.check_plan([Path(PARAMS)])
    assert problems
    assert all(len(problem) < 1000 for problem in problems)


def test_a_preset_that_no_row_uses_is_checked_as_the_kind_whose_keys_are_nearest(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    meeting.repository()
    with Path(PRESETS).open("a", encoding="utf-8") as file:
        file.write("mine: {kind: sigmoid, beta: 0.5, label_smothing: 0.1}\n")
        file.write("ours: {advantage: group_zscore, clip_high: 1.0e+308}\n")
    _, problems = plan.check_plan([Path(PARAMS)])
    assert problems == [
        "stages/presets.yaml: mine.label_smothing: unknown key; remove it",
        "stages/presets.yaml: ours.clip_high: expected 1.2e-38 to 1e+18 (float32 holds neither "
        "smaller numbers nor larger squares), found 1e+308",
    ]
