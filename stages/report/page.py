"""Rendering of the report: one HTML page, which opens from disk, and Markdown.

The Jinja2 templates are page.html.j2 and page.md.j2 beside this file. The page fetches nothing and
runs nothing: plots are embedded, and text of models is escaped, control characters and marks that
change the direction of text included.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from stages.report.sections import Image, Section
from stages.report.tables import MADE_FOR, Rows

PICTURE = Image(
    "accuracy.svg", "Mean accuracy of each policy with its interval, and a dot for each seed"
)
HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters except tab and newline, marks of direction, halves of surrogate pairs."""


def write_report(
    folder: Path, verdict: Sequence[str], parts: Sequence[Section], picture: Image | None = PICTURE
) -> None:
    """Write `report.html`, `report.md` and `verdict.txt`, beside the plots in `plots/`.

    The Markdown, for a terminal and for MLflow, has no transcripts. `picture` is the plot at the
    top, if any.
    """

    def inline(file: str) -> str:
        svg = base64.b64encode((folder / "plots" / file).read_bytes()).decode("ascii")
        return f"data:image/svg+xml;base64,{svg}"

    content = {"picture": picture, "verdict": verdict, "sections": parts}
    filters = {"table": render_html_table, "inline": inline}
    page = _render("page.html.j2", filters, content, escape=True)
    (folder / "report.html").write_text(page, encoding="utf-8")
    text = _render("page.md.j2", {"table": render_markdown_table}, content)
    text = re.sub(r"\n{3,}", "\n\n", text)
    (folder / "report.md").write_text(text.strip() + "\n", encoding="utf-8")
    (folder / "verdict.txt").write_text("\n".join(verdict) + "\n", encoding="utf-8")


def render_html_table(table: Rows) -> Markup:
    """An HTML table of escaped cells; page.html.j2 has its style."""
    frame = pd.DataFrame(table).fillna("")
    words = "words" if MADE_FOR in frame.columns else None
    return Markup(frame.to_html(index=False, border=0, classes=words))


def render_markdown_table(table: Rows) -> str:
    """A Markdown table: the first column aligned left, the others right."""
    frame = pd.DataFrame(table).fillna("")
    rows = [list(frame.columns), ["---"] + ["---:"] * (len(frame.columns) - 1), *frame.values]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)


def escape_invisible(value: Any) -> Any:
    r"""Text with control characters as escapes (`\x1b`) that do nothing; `Markup` stays."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return HIDDEN.sub(lambda match: ascii(match[0])[1:-1], value)


def _render(
    template: str,
    filters: Mapping[str, Callable[..., str]],
    content: Mapping[str, Any],
    *,
    escape: bool = False,
) -> str:
    environment = jinja2.Environment(
        autoescape=escape, undefined=jinja2.StrictUndefined, finalize=escape_invisible
    )
    environment.filters |= filters
    text = Path(__file__).with_name(template).read_text(encoding="utf-8")
    return environment.from_string(text).render(content)
