"""The report page: one HTML file that opens from disk, without a network and without scripts."""

import html
from collections.abc import Sequence

from stages.reports.page.section import Section
from stages.reports.page.style import STYLE

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'"
"""Content security policy (W3C, level 3): the page can neither fetch nor run anything, whatever
it quotes."""


def render(title: str, introduction: str, sections: Sequence[Section]) -> str:
    """The page.

    Args:
        title: plain text.
        introduction: plain text, one paragraph below the title.
        sections: in the order in which they stand.

    Raises:
        ValueError: two sections have one anchor.
    """
    anchors = [section.anchor for section in sections]
    if len(set(anchors)) < len(anchors):
        raise ValueError(
            f"Expected sections with an anchor each, found {anchors}: name each report once."
        )
    name = html.escape(title)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            f"<title>{name}</title>",
            f"<style>\n{STYLE}</style>",
            "</head>",
            '<body id="top">',
            '<a class="skip" href="#content">To the content</a>',
            f"<header><h1>{name}</h1><p>{html.escape(introduction)}</p></header>",
            '<div class="columns">',
            contents(sections),
            '<main id="content">',
            *(article(section) for section in sections),
            "</main>",
            "</div>",
            "</body>",
            "</html>",
            "",
        ]
    )


def contents(sections: Sequence[Section]) -> str:
    """The table of contents: sections, and in each its headings of level 3."""
    lines = ['<nav aria-label="Contents"><h2>Contents</h2><ol>']
    for section in sections:
        inner = "".join(f"<li>{_link(anchor, title)}</li>" for anchor, title in section.parts)
        below = f"<ul>{inner}</ul>" if inner else ""
        lines.append(f"<li>{_link(section.anchor, section.title)}{below}</li>")
    return "\n".join([*lines, "</ol></nav>"])


def article(section: Section) -> str:
    """One section, with a way back to the contents."""
    return (
        f'<section aria-labelledby="{html.escape(section.anchor)}">'
        f'<h2 id="{html.escape(section.anchor)}">{html.escape(section.title)} '
        f'<a class="up" href="#top" aria-label="To the contents">↑</a></h2>\n'
        f"{section.body}</section>"
    )


def _link(anchor: str, title: str) -> str:
    return f'<a href="#{html.escape(anchor)}">{html.escape(title)}</a>'
