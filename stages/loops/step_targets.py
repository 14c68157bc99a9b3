"""What a process reward model is to say at each step: the targets of labelled solutions."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from stages.models.process_head import Solution
from stages.params import Params
from stages.records.steps import StepLabels


class HardTargets(Params):
    """1 where the label is above the threshold, else 0."""

    kind: Literal["hard"]
    threshold: float = Field(ge=0, lt=1)
    """0: right as soon as one continuation was (Wang et al., "Math-Shepherd" (2024), eq. 3)."""

    def of(self, label: float) -> float:
        """The target of a label."""
        return float(label > self.threshold)


class SoftTargets(Params):
    """The label itself: the share of continuations that were right (Wang et al. 2024, eq. 4)."""

    kind: Literal["soft"]

    def of(self, label: float) -> float:
        """The target of a label: never cut to 0 or 1."""
        return label


Targets = Annotated[HardTargets | SoftTargets, Field(discriminator="kind")]


def check(row: StepLabels) -> None:
    """Refuse a row whose labels do not fit its steps.

    Raises:
        ValueError: labels that are not one a step, or not in [0, 1].
    """
    where = f"solution {row.index} of problem {row.id} ({row.source})"
    if not len(row.steps) == len(row.step_ids) == len(row.labels):
        raise ValueError(
            f"{where}: expected one text, one list of tokens and one label for each step, found "
            f"{len(row.steps)}, {len(row.step_ids)} and {len(row.labels)}: rerun what wrote it"
        )
    for label in row.labels:
        if label is not None and not (math.isfinite(label) and 0 <= label <= 1):
            raise ValueError(
                f"{where}: expected labels from 0 to 1 or null, found {label}: map the source's "
                f"scale (such as -1, 0, 1) to the probability that the step is right"
            )


def targets(row: StepLabels, kind: Targets, *, up_to_first_error: bool) -> list[float | None]:
    """The target of each step; None: none.

    Args:
        row: a solution.
        kind: hard or soft.
        up_to_first_error: leave out what follows the first step whose target is below 1/2, as
            Lightman et al., "Let's Verify Step by Step" (2023), section 2.4.

    Raises:
        ValueError: as `check`.
    """
    check(row)
    found = [None if label is None else kind.of(label) for label in row.labels]
    if not up_to_first_error:
        return found
    end = next(
        (i + 1 for i, target in enumerate(found) if target is not None and target < 0.5), len(found)
    )
    return [*found[:end], *[None] * (len(found) - end)]


def solutions(rows: Sequence[StepLabels]) -> list[Solution]:
    """The rows as the model reads them."""
    return [Solution(prompt_ids=row.prompt_ids, steps=row.step_ids) for row in rows]
