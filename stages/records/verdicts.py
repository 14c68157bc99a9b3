"""What the answer checker says of a problem's pool, before anything chooses among it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """Of one problem."""

    id: str
    right: list[bool]
    """Of each completion, in the order of the pool."""
    majority: float
    """Accuracy of the majority vote over all of them."""
