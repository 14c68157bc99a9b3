"""Largest and smallest values that make sense, of every number and text of params.yaml and presets.

A `Config` says what a number means (above 0, a share); these bounds catch what no machine can
compute: 10^400 layers, a temperature of 1e308, a template of a million letters. They are far from
every published setting.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple


class Bounds(NamedTuple):
    """Range of a number's magnitude, 0 aside, and its reason."""

    low: float
    high: float
    reason: str


NUMBERS = {
    "seeds.*": Bounds(0, 2**63 - 1, "a seed is a number of 63 bits"),
    "data_seed": Bounds(0, 2**63 - 1, "a seed is a number of 63 bits"),
    "num_processes": Bounds(0, 2**16, "each process takes a GPU"),
    "model.tiny.num_layers": Bounds(0, 2**10, "larger models are named under model.path"),
    "model.tiny.*": Bounds(0, 2**22, "larger models are named under model.path"),
    "*temperature": Bounds(
        0.01, 100, "below, sampling is greedy; above, every token is as likely as any other"
    ),
    "*learning_rate": Bounds(1e-30, 1, "AdamW moves each weight by about this much in a step"),
    "*token_budget": Bounds(0, 10**15, "no run reads more tokens"),
    "*_tokens": Bounds(0, 2**27, "no model reads or writes more tokens at once"),
}
"""Pattern of keys, as `fnmatch` reads it -> bounds; the first that matches counts."""
COUNTS = Bounds(0, 10**9, "no run would end")
"""Of other whole numbers."""
REALS = Bounds(1.2e-38, 1e18, "float32 holds neither smaller numbers nor larger squares")
"""Of other numbers."""
MAX_CHARACTERS = 100_000


def check_bounds(content: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """A line for each number or text out of bounds; `place` stands before its path."""
    for path, value in walk(content):
        if isinstance(value, str):
            if len(value) > MAX_CHARACTERS:
                yield (
                    f"{place}{path}: expected at most {MAX_CHARACTERS} characters, found "
                    f"{len(value)}: {value[:40]!a} ..."
                )
            continue
        kind = COUNTS if isinstance(value, int) else REALS
        bounds = next((NUMBERS[key] for key in NUMBERS if fnmatchcase(path, key)), kind)
        if value and not bounds.low <= abs(value) <= bounds.high:
            expected = f"at most {bounds.high:g}"
            if bounds.low:
                expected = f"{bounds.low:g} to {bounds.high:g}"
            yield (
                f"{place}{path}: expected {expected} ({bounds.reason}), found {show_number(value)}"
            )


def walk(content: Any, path: str = "") -> Iterator[tuple[str, int | float | str]]:
    """Every finite number and every text, by the keys that lead to it."""
    if isinstance(content, Mapping | list):
        items = content.items() if isinstance(content, Mapping) else enumerate(content)
        for key, value in items:
            yield from walk(value, f"{path}.{key}" if path else f"{key}")
    elif isinstance(content, str) or is_finite(content):
        yield path, content


def is_finite(value: Any) -> bool:
    """Whether it is a number, and neither NaN nor infinite, which a `Config` refuses."""
    if isinstance(value, float):
        return value - value == 0
    return isinstance(value, int) and not isinstance(value, bool)


def show_number(value: int | float) -> str:
    """The number; a whole number that is too long to read as its length."""
    if isinstance(value, int) and value.bit_length() > 100:
        return f"a number of about {round(value.bit_length() * 0.30103)} digits"
    return repr(value)
