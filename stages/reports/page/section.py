"""A section of the report page."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """What stands under one heading of the page and in one line of its table of contents."""

    anchor: str
    """Id of the heading, once on the page."""
    title: str
    """Plain text."""
    body: str
    """HTML in which all that is of a file is escaped; its headings are of level 3 and below."""
    parts: list[tuple[str, str]]
    """(anchor, title) of the headings of level 3, in order."""
