"""Labelled steps to learn from, and those of other problems that are held out."""

from collections.abc import Sequence
from pathlib import Path

from stages.records import lines
from stages.records.known_steps import shared_prompts
from stages.records.step_labels import StepLabels

TEST_SETS = frozenset(("processbench",))
"""Sources that are published to test on."""


def read(steps: Path, heldout: Path) -> tuple[list[StepLabels], list[StepLabels]]:
    """The rows of two steps.jsonl: those to learn from, those held out.

    Raises:
        ValueError: as `check`.
    """
    found = list(lines.read(steps, StepLabels)), list(lines.read(heldout, StepLabels))
    check(*found)
    return found


def check(rows: Sequence[StepLabels], heldout: Sequence[StepLabels]) -> None:
    """Refuse to learn from what is tested on.

    Raises:
        ValueError: rows to learn from that are of a test set, or of a problem that is held out.
    """
    tests = [row for row in rows if row.source in TEST_SETS]
    if tests:
        raise ValueError(
            f"expected rows to learn from, found {len(tests)} of {len(rows)} of "
            f"{tests[0].source}, such as problem '{tests[0].id}': it is a test set, and no "
            f"number on it would mean anything. Name other `steps`."
        )
    shared = shared_prompts(rows, heldout)
    if shared:
        raise ValueError(
            f"expected other problems in `heldout` than in `steps`, found {len(shared)} in both, "
            f"such as {min(shared)!r:.80}: the held-out numbers would be of what was learned. "
            f"Name another heldout."
        )
