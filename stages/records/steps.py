"""Solutions in labelled steps: as a source has them, to learn from, and where errors are known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.records import lines


@dataclass(frozen=True, kw_only=True, slots=True)
class RawSteps:
    """One solution, whole or a prefix; the lists have one entry a step."""

    id: str | None
    """The source's own; None: what is asked names the problem."""
    line: int
    """Where the row stood, from 1."""
    question: str
    steps: list[str]
    labels: list[float | None]
    num_completions: list[int]
    true_labels: list[bool] | None
    correct: bool | None
    finished: bool
    """Whether the last step ends the solution; otherwise a prefix was labelled."""
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StepLabels:
    """One row of `data/steps/<name>/<seed>/train.jsonl` and `heldout.jsonl`.

    A step's label says whether the solution up to and including this step is free of errors.
    The first error is the first step whose label is False or below 0.5; -1 where there is none.
    """

    id: str
    """The problem's id."""
    index: int
    """The completion's index in its pool; 0 for imported rows."""
    prompt: str
    prompt_ids: list[int]
    steps: list[str]
    """The text of each step."""
    step_ids: list[list[int]]
    """The tokens of each step, as sampled (or tokenised step by step), without a step token:
    joined they are the completion."""
    labels: list[float | None]
    """P(the solution is still right after this step); None: not labelled."""
    num_completions: list[int]
    """Completions behind each label; 0: not an estimate, but known or a person's."""
    true_labels: list[bool] | None
    """The known truth of each step, where there is one."""
    correct: bool | None
    """Whether the final answer is right, where that is known."""
    source: str
    """Who labelled it: `math_shepherd`, `truth`, `prm800k`, `math_aps`, `processbench`; `none`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixCount:
    """One row of `data/label_steps/<name>/prefixes.jsonl`: hard and soft labels come from it."""

    id: str
    """The problem's id."""
    prefix_ids: list[int]
    """The steps so far, as sampled."""
    num_completions: int
    """Completions drawn from here."""
    num_right: int
    """Those of them that end in the right answer."""
    low: float
    """Wilson's 95 % interval of the probability that one does."""
    high: float
    generated_tokens: int
    """What the completions took."""


NO_ERROR = -1
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
    return row.true_labels.index(False) if False in row.true_labels else NO_ERROR


def num_tokens(row: StepLabels) -> int:
    """What a process model reads: the prompt, the steps, and a step token after each."""
    return len(row.prompt_ids) + sum(len(ids) + 1 for ids in row.step_ids)


def read_known_steps(path: Path, *, max_tokens: int, leave_out_long: bool) -> KnownSteps:
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


TEST_SETS = frozenset(("processbench",))
"""Sources that are published to test on."""


def read_training_steps(steps: Path, heldout: Path) -> tuple[list[StepLabels], list[StepLabels]]:
    """The rows of two steps.jsonl: those to learn from, those held out.

    Raises:
        ValueError: as `check`.
    """
    found = list(lines.read(steps, StepLabels)), list(lines.read(heldout, StepLabels))
    check_training_steps(*found)
    return found


def check_training_steps(rows: Sequence[StepLabels], heldout: Sequence[StepLabels]) -> None:
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
