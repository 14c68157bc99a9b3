"""The report as one HTML page, which opens from disk, and as Markdown: both by Jinja2.

The page fetches nothing and runs nothing: plots are inside it, and what a model wrote is escaped,
control characters and marks that turn the direction of text included.
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
STYLE = """\
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c1e21; --faint: #5b6169; --line: #d9dce1; --card: #f6f7f9;
  --right: #0a6b3d; --wrong: #b3261e; --head: #eceef2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181c; --ink: #e6e8eb; --faint: #a3aab3; --line: #3a3f47; --card: #1f2227;
    --right: #6bd49b; --wrong: #ff938a; --head: #2a2e35;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 12px 24px 60px; max-width: 1080px; background: var(--paper);
  color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
h1 { font-size: 1.6rem; margin: .8rem 0; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-top: .9rem;
  border-top: 1px solid var(--line); }
p { max-width: 80ch; }
.verdict { font-size: 1.06rem; }
.note { color: var(--faint); font-size: .92rem; }
.plot { background: #ffffff; border: 1px solid var(--line); border-radius: 8px; padding: 8px;
  margin: .8rem 0; }
.plot img { display: block; width: 100%; max-width: 860px; height: auto; margin: 0 auto; }
.table { overflow-x: auto; margin: .8rem 0; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: .86rem; line-height: 1.35; }
th, td { padding: .36rem .55rem; text-align: right; font-variant-numeric: tabular-nums; }
th { background: var(--head); font-weight: 600; vertical-align: bottom; }
td { border-top: 1px solid var(--line); }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.words :is(th, td):nth-child(2) { text-align: left; white-space: normal; }
details { margin: .5rem 0; border: 1px solid var(--line); border-radius: 8px; padding: 0 12px; }
summary { cursor: pointer; padding: 8px 0; font-weight: 600; }
.answers { display: grid; gap: 10px; grid-template-columns: repeat(auto-fill, minmax(210px, 1fr)); }
.answer { background: var(--card); border-left: 4px solid var(--line); border-radius: 6px;
  padding: 6px 10px; }
.answer.right { border-left-color: var(--right); }
.answer.wrong { border-left-color: var(--wrong); }
.answer pre { margin: .2rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: .84em/1.45 ui-monospace, Menlo, Consolas, monospace; }
@media (max-width: 600px) {
  body { padding: 8px 12px 40px; }
  .plot { overflow-x: auto; }
  .plot img { width: max(100%, 560px); }
}
"""
HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but tab and newline, marks of direction, halves of surrogate pairs."""
PAGE = """\
{%- macro show(block) -%}
{%- if block is string -%}
<p class="note">{{ block }}</p>
{%- elif block.file is defined -%}
<div class="plot"><img src="{{ block.file | inline }}" alt="{{ block.alt }}"></div>
{%- elif block.blocks is defined -%}
<details><summary>{{ block.title }}</summary>
{% for inner in block.blocks %}{{ show(inner) }}
{% endfor %}</details>
{%- elif block.answers is defined -%}
<p><strong>{{ block.prompt.id }}</strong> ({{ block.reason }}): {{ block.prompt.question }}
{% if block.prompt.answer is not none %}Right answer: {{ block.prompt.answer }}{% endif %}</p>
<div class="answers">
{%- for policy, text, is_right in block.answers %}
{%- set side = {true: 'right', false: 'wrong'}.get(is_right, '') %}
<div class="answer {{ side }}"><strong>{{ policy }}</strong>:
{{ {'right': '✓ ', 'wrong': '✗ '}.get(side, '') ~ side }}<pre>{{ text or '(nothing)' }}</pre></div>
{%- endfor %}
</div>
{%- else -%}
<div class="table" tabindex="0" role="region" aria-label="Table">{{ block | table }}</div>
{%- endif -%}
{%- endmacro -%}
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
style-src 'unsafe-inline'; base-uri 'none'">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Post-training, compared</title>
<style>
{{ style }}</style>
</head>
<body>
<h1>Post-training, compared</h1>
{% if picture %}{{ show(picture) }}{% endif %}
{% for sentence in verdict %}<p class="verdict">{{ sentence }}</p>
{% endfor %}
{%- for section in sections %}
<h2>{{ section.title }}</h2>
{% for block in section.blocks %}{{ show(block) }}
{% endfor %}
{%- endfor %}
</body>
</html>
"""
MARKDOWN = """\
{%- macro show(block) -%}
{%- if block is string -%}
{{ block }}
{%- elif block.file is defined -%}
![{{ block.alt }}](plots/{{ block.file }})
{%- elif block.blocks is defined -%}
{%- if not block.blocks | selectattr('answers', 'defined') | list -%}
### {{ block.title }}
{% for inner in block.blocks %}
{{ show(inner) }}
{% endfor -%}
{%- endif -%}
{%- else -%}
{{ block | table }}
{%- endif -%}
{%- endmacro -%}
# Post-training, compared

{% if picture %}{{ show(picture) }}{% endif %}
{% for sentence in verdict %}
{{ sentence }}
{% endfor %}
{%- for section in sections %}
## {{ section.title }}
{% for block in section.blocks %}
{{ show(block) }}
{% endfor %}
{%- endfor -%}
"""


def write(
    folder: Path, verdict: Sequence[str], parts: Sequence[Section], picture: Image | None = PICTURE
) -> None:
    """`report.html`, the same as Markdown, and the verdict, beside the plots in `plots/`.

    The Markdown, for a terminal and for MLflow, is without transcripts.
    """

    def inline(file: str) -> str:
        svg = base64.b64encode((folder / "plots" / file).read_bytes()).decode("ascii")
        return f"data:image/svg+xml;base64,{svg}"

    said = {"picture": picture, "verdict": verdict, "sections": parts}
    filters = {"table": html_table, "inline": inline}
    page = _render(PAGE, filters, escape=True, style=Markup(STYLE), **said)
    (folder / "report.html").write_text(page, encoding="utf-8")
    text = re.sub(r"\n{3,}", "\n\n", _render(MARKDOWN, {"table": markdown_table}, **said))
    (folder / "report.md").write_text(text.strip() + "\n", encoding="utf-8")
    (folder / "verdict.txt").write_text("\n".join(verdict) + "\n", encoding="utf-8")


def html_table(table: Rows) -> Markup:
    """Escaped cells; how it looks is in `STYLE`."""
    frame = pd.DataFrame(table).fillna("")
    words = "words" if MADE_FOR in frame.columns else None
    return Markup(frame.to_html(index=False, border=0, classes=words))


def markdown_table(table: Rows) -> str:
    """Text on the left, numbers on the right."""
    frame = pd.DataFrame(table).fillna("")
    rows = [list(frame.columns), ["---"] + ["---:"] * (len(frame.columns) - 1), *frame.values]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)


def visible(value: Any) -> Any:
    r"""Text whose control characters are seen (`\x1b`) and do nothing; our own mark-up as it is."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return HIDDEN.sub(lambda found: ascii(found[0])[1:-1], value)


def _render(
    template: str, filters: Mapping[str, Callable[..., str]], *, escape: bool = False, **said: Any
) -> str:
    environment = jinja2.Environment(
        autoescape=escape, undefined=jinja2.StrictUndefined, finalize=visible
    )
    environment.filters |= filters
    return environment.from_string(template).render(**said)
