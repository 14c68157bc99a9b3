"""Rendering of the report: a self-contained HTML page, and Markdown.

The Jinja2 templates are page.html.j2 and page.md.j2 beside this file. The page fetches nothing:
plots are embedded. Its content security policy allows one script, which sorts tables. Text of
models is escaped, with its control characters and direction marks.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from stages.report.markdown import render_table
from stages.report.sections import Section, drop_empty

HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters except tab and newline, marks of direction, halves of surrogate pairs."""


def write_report(
    folder: Path,
    title: str,
    verdict: Sequence[str],
    facts: Mapping[str, str],
    parts: Sequence[Section],
) -> None:
    """Write `report.html`, `report.md` and `verdict.txt`, beside the plots in `plots/`.

    The first sentence of the verdict and the first of `parts`, the head, come before all else.
    Sections without content are left out. The Markdown, for a terminal and for MLflow, has no
    transcripts and conversations. `facts` say what was compared.
    """

    def inline(file: str) -> str:
        text = (folder / "plots" / file).read_text(encoding="utf-8")
        # The first patch is the background: without it that of the page shows.
        svg = text.replace('style="fill: #ffffff"', 'style="fill: none"', 1)
        return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode('ascii')}"

    content = {"title": title, "verdict": verdict, "facts": facts}
    page = _render(
        "page.html.j2",
        {"inline": inline, "code": mark_code, "anchor": make_anchor, "sha256": digest_script},
        content | {"sections": drop_empty(parts)},
        escape=True,
    )
    (folder / "report.html").write_text(page, encoding="utf-8")
    text = _render(
        "page.md.j2",
        {"table": render_table},
        content | {"sections": drop_empty(parts, transcripts=False)},
    )
    text = re.sub(r"\n{3,}", "\n\n", text)
    (folder / "report.md").write_text(text.strip() + "\n", encoding="utf-8")
    (folder / "verdict.txt").write_text("\n".join(verdict) + "\n", encoding="utf-8")


def mark_code(text: str) -> Markup:
    """Escaped text, in which backticks become code."""
    escaped = str(escape(escape_invisible(text)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))


def digest_script(script: str) -> str:
    """The name of a script in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode('ascii')}"


def make_anchor(title: str) -> str:
    """The id of a section: `choosing-among-samples`."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


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
