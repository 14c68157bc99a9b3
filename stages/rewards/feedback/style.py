"""The two styles that each prompt of AI feedback is written in."""

from typing import Literal

Style = Literal["short", "full"]
"""`short` is for the embedded model, which learns it; `full` for instruction-tuned models."""

STYLES = ("short", "full")


def check(style: str) -> None:
    """Raise a ValueError if there is no such style."""
    if style not in STYLES:
        raise ValueError(
            f"the style of a prompt is one of {', '.join(STYLES)}, found {style!r}: set `style`"
        )
