"""Numbers with their intervals, tables of them, and templates, as Markdown."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

Interval = Mapping[str, Any]
"""`{value, low, high}`"""


def render_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = ()
) -> str:
    """Table with numbers aligned right; the first column, and those in `words`, aligned left."""
    rules = ["---" if column in (header[0], *words) else "---:" for column in header]
    lines = [header, rules, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def format_percent(interval: Interval | None) -> str:
    """Share in per cent; `none` if nothing could be measured."""
    if interval is None:
        return "none"
    value, low, high = (100 * interval[key] for key in ("value", "low", "high"))
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"


def format_number(interval: Interval | None) -> str:
    """Number with three decimals; `none` if nothing could be measured."""
    return "none" if interval is None else "{value:.3f} [{low:.3f}, {high:.3f}]".format(**interval)


def format_difference(number: float) -> str:
    """Number with its sign: one decimal, or more up to its first digit, so that none reads as 0."""
    text = f"{number:+.1f}"
    return f"{number:+.1g}" if number and not float(text) else text


def format_points(interval: Interval) -> str:
    """Difference in percentage points, bold if the interval excludes zero."""
    value, low, high = (format_difference(100 * interval[key]) for key in ("value", "low", "high"))
    text = f"{value} [{low}, {high}]"
    return text if interval["low"] <= 0 <= interval["high"] else f"**{text}**"


def render_template(path: Path, **values: Any) -> str:
    """Text of a Jinja2 template: a line with nothing but a tag leaves no line.

    Filters: `form` (Python's format), `percent`, `number`, `points` and `table` of this file.
    """
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {
        "form": format, "percent": format_percent, "number": format_number,
        "points": format_points, "table": render_table,
    }  # fmt: skip
    return environment.from_string(path.read_text(encoding="utf-8")).render(values)
