"""Nested values as dotted names, and names that MLflow accepts."""

import re
from collections.abc import Iterator
from typing import Any


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of everything in nested dictionaries; lists are values."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, value


def numbers(value: Any) -> dict[str, float]:
    """The leaves that are numbers (true is 1)."""
    return {name: float(leaf) for name, leaf in leaves(value) if isinstance(leaf, int | float)}


def name(text: str) -> str:
    """`text` as a key of MLflow: letters, digits, `_`, `-`, `.`, `/` and space only."""
    return re.sub(r"[^\w\-. /]", "_", text.replace("@", "_at_"))


def batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """`items` in slices of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
