"""A Markdown report as a section of the page: images inlined, tables that scroll by themselves.

Converted by markdown-it-py, which follows CommonMark (with the tables of GitHub's dialect). Raw
HTML is text here, and a link that is not http, https or inside the page is left out: a report
quotes what models wrote.
"""

import re
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from stages.reports.page import inline_image
from stages.reports.page.section import Section

LINKS = ("http://", "https://", "#")


def convert(text: str, *, folder: Path, anchor: str) -> Section:
    """The section that a report makes; its title is the report's own.

    Args:
        text: Markdown whose first line is its one heading of level 1.
        folder: where the report lies, which its images are relative to.
        anchor: id of the section, and what the ids of its headings begin with.

    Raises:
        ValueError: it begins with something else, or names an image that is not there.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.validateLink = lambda url: url.startswith(LINKS) or url.endswith(".png")
    tokens = parser.parse(text)
    titles = [token for token in tokens if token.type == "heading_open" and token.tag == "h1"]
    if not tokens or titles != [tokens[0]]:
        raise ValueError(
            f"Expected a report that begins with its one heading of level 1 ('# Title'), found "
            f"{len(titles)} such headings in the report '{anchor}', which begins {text[:40]!r}."
        )
    title, tokens = _plain(tokens[1]), tokens[3:]
    parts = list(_name_headings(tokens, anchor))
    renderer = _Renderer(folder)
    return Section(
        anchor=anchor,
        title=title,
        body=renderer.render(tokens, parser.options, {}),
        parts=[(token, name) for level, token, name in parts if level == 3],
    )


def slug(text: str) -> str:
    """Lower-case letters and digits, with hyphens in place of everything else."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _plain(inline: Token) -> str:
    return "".join(child.content for child in inline.children or []).strip()


def _name_headings(tokens: Sequence[Token], anchor: str) -> Iterator[tuple[int, str, str]]:
    """Make each heading one level deeper and give it an id; (level, id, text) of each."""
    used: dict[str, int] = {}
    for place, token in enumerate(tokens):
        if token.type not in ("heading_open", "heading_close"):
            continue
        level = min(6, int(token.tag[1]) + 1)
        token.tag = f"h{level}"
        if token.type == "heading_open":
            text = _plain(tokens[place + 1])
            name = f"{anchor}-{slug(text)}"
            used[name] = used.get(name, 0) + 1
            name += f"-{used[name]}" if used[name] > 1 else ""
            token.attrSet("id", name)
            yield level, name, text


class _Renderer(RendererHTML):
    """What differs from the library's own HTML."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def image(
        self,
        tokens: Sequence[Token],
        idx: int,
        options: OptionsDict,  # noqa: ARG002
        env: MutableMapping[str, Any],  # noqa: ARG002
    ) -> str:
        source = str(tokens[idx].attrGet("src"))
        path = self.folder / source
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise ValueError(
                f"Expected images in the report's own folder {self.folder}, found {source!r}."
            )
        tag = inline_image.tag(path, alt=tokens[idx].content)
        return f'<span class="scroll figure">{tag}</span>'

    def table_open(self, *_: Any) -> str:
        # What scrolls has to be reachable without a mouse.
        return '<div class="scroll table" tabindex="0" role="region" aria-label="Table"><table>\n'

    def table_close(self, *_: Any) -> str:
        return "</table></div>\n"
