"""Solutions in steps of which it is known where the first wrong one is."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stages.records import lines
from stages.records.step_labels import StepLabels

NONE = -1
"""In place of the first wrong step, where there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownSteps:
    """The rows of a file that a model can read."""

    rows: list[StepLabels]
    first_errors: list[int]
    """The first wrong step of each, or -1."""
    left_out_long: int
    """Rows with more tokens than the model has positions."""


def first_error(row: StepLabels) -> int:
    """The first step that is not right; -1 where all are.

    Raises:
        ValueError: the truth of the steps is not known.
    """
    if row.true_labels is None or len(row.true_labels) != len(row.steps):
        raise ValueError(
            f"problem '{row.id}', completion {row.index} ({row.source}): expected `true_labels`, "
            f"one a step, found {row.true_labels}. Evaluate on steps whose truth is known: "
            f"label_steps of the generated problems, or ProcessBench."
        )
    return row.true_labels.index(False) if False in row.true_labels else NONE


def num_tokens(row: StepLabels) -> int:
    """What a process model reads: the prompt, the steps, and a step token after each."""
    return len(row.prompt_ids) + sum(len(ids) + 1 for ids in row.step_ids)


def read(path: Path, *, max_tokens: int, leave_out_long: bool) -> KnownSteps:
    """The rows of a steps.jsonl.

    Args:
        path: the file.
        max_tokens: what the model can read.
        leave_out_long: count longer rows and leave them out, in place of an error.

    Raises:
        ValueError: the truth of a row is not known, or a row is too long.
    """
    everything = list(lines.read(path, StepLabels))
    fitting = [row for row in everything if num_tokens(row) <= max_tokens]
    num_long = len(everything) - len(fitting)
    if num_long and not leave_out_long:
        raise ValueError(
            f"{path}: {num_long} of {len(everything)} solutions have more tokens than the "
            f"{max_tokens} positions of the model, up to {max(map(num_tokens, everything))}. Take "
            f"a model with more, or leave them out: evaluate_process_reward.leave_out_long."
        )
    return KnownSteps(
        rows=fitting,
        first_errors=[first_error(row) for row in fitting],
        left_out_long=num_long,
    )


def shared_prompts(some: Iterable[StepLabels], others: Iterable[StepLabels]) -> set[str]:
    """Problems, by their prompts, that are in both."""
    return {row.prompt for row in some} & {row.prompt for row in others}


def check_apart(dev: KnownSteps, test: KnownSteps) -> None:
    """Raise a ValueError if a problem is in both: the threshold would be chosen on the test."""
    shared = shared_prompts(dev.rows, test.rows)
    if shared:
        raise ValueError(
            f"expected other problems for dev than for test, found {len(shared)} in both, such as "
            f"{min(shared)!r:.80}: the threshold would be chosen on the test. Name another dev."
        )
