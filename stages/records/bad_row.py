"""A row that was rejected, for the quarantine file."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRow:
    """Where a rejected row stood and why it was rejected."""

    file: str
    """The file's name (not its path), or the name of the hub data set's split."""
    line: int
    """From 1."""
    reason: str
    """What was expected and what was found."""
    content: str
    """The row as read, cut to 500 characters."""
