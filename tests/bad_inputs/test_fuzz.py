"""Wrong values for every key of params.yaml, presets.yaml and the recipes: never a traceback.

Each is refused by the name of its key; what is absurd (10^400, 1e308, NaN, 300,000 letters) always
is: each preset has a row that reads it. A fixed few of the 18,000 values each time, all weekly.
"""

import datetime
import functools
import hashlib
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bad_inputs.test_refusals import JARGON, PARAMS, PRESETS, ROOT, load, repository, save
from staleness.pipeline import add_rows

from stages import auto, plan, plan_checks

__all__ = ["repository"]  # a fixture
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
CONTENTS = {path: load(ROOT / path) for path in (PARAMS, PRESETS, *RECIPES)}
ALL_ROWS = load(ROOT / PARAMS)
"""params.yaml with a row of each preset."""
add_rows(
    ALL_ROWS, auto.resolve({"presets": CONTENTS[PRESETS]}, None)[0]["presets"],
    plan_checks.load_entry_points(),
)  # fmt: skip
NUM_EACH_TIME = 36


def list_places(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        yield (*place, key)
        if isinstance(value, dict | list):
            yield from list_places(value, (*place, key))


CASES = {
    f"{path} {'.'.join(map(str, place))}: {wrong}": (path, place, wrong)
    for path, content in CONTENTS.items()
    for place in list_places(content)
    for wrong in WRONG
}
ORDER = sorted(CASES, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
PARTS = [ORDER[number::97] for number in range(97)]


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(ORDER[:NUM_EACH_TIME], id="some"),
        *(pytest.param(part, marks=pytest.mark.weekly, id=f"{i}") for i, part in enumerate(PARTS)),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_its_key_or_is_right(cases, repository):
    usual = dict[str, list[str]]()  # problems without an edit
    for case in cases:
        path, place, wrong = CASES[case]
        content, recipes = load(ROOT / path), [Path(path)] if path in RECIPES else []
        save(PARAMS, ALL_ROWS if path == PRESETS else CONTENTS[PARAMS])
        if path not in usual:
            usual[path] = plan.check_plan([Path(PARAMS), *recipes])[1]
        *parents, key = place
        functools.reduce(operator.getitem, parents, content)[key] = WRONG[wrong]
        save(path, content)
        _, problems = plan.check_plan([Path(PARAMS), *recipes])
        save(path, CONTENTS[path])
        problems = [problem for problem in problems if problem not in usual[path]]
        # Which options an environment takes, lists and objects among them, its class alone knows.
        is_option = "options" in place and wrong in ("lists", "deep")
        assert problems or wrong not in ABSURD or place[0] == "tables" or is_option, case
        names = [str(part) for part in place if isinstance(part, str)]
        # Where a table has lost its rows, `there is no policy ..` names it.
        lost = "there is no policy" if names[-1] == "policies" else names[-1]
        is_named = any(names[-1] in each or lost in each for each in problems)
        assert is_named or not problems, (case, problems)
        odd = [text for text in problems if len(text) >= 1000 or not text.isprintable()]
        assert odd == [], case
        assert [word for word in JARGON for text in problems if word in text] == [], case
