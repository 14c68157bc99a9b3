"""Rows of solutions with labelled reasoning steps: raw, tokenised, and counted prefixes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.records import lines

Decode = Callable[[Sequence[int]], str]
"""Tokens to text without special tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawSteps:
    """Solution or prefix of one, as a source has it; the lists have one entry a step."""

    id: str | None = None
    """The source's id of the problem; None: it is made of the prompt."""
    line: int
    """Line of the row in its file, from 1."""
    file: str = ""
    """The file's name in its folder."""
    question: str
    steps: list[str]
    labels: list[float | None]
    num_completions: list[int]
    true_labels: Sequence[bool | None] | None = None
    correct: bool | None = None
    finished: bool = True
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
    step_ids: list[list[int]]
    """The tokens of each step, as sampled (or tokenised step by step), without a step token:
    joined they are the completion."""
    labels: list[float | None]
    """P(the solution is still right after this step); None: not labelled."""
    num_completions: list[int]
    """Completions that each label is estimated from; 0: it is known, or a person's."""
    true_labels: Sequence[bool | None] | None
    """The known truth of each step, where there is one; None: a part of a step that was cut."""
    correct: bool | None
    """Whether the final answer is right, where that is known."""
    source: str
    """Who labelled it: `math_shepherd`, `truth`, `prm800k`, `math_aps`, `stepwise` (a file in TRL's
    form) or `processbench`; `none`: nobody."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixCount:
    """One row of `data/steps/<name>/<seed>/prefixes.jsonl`: hard and soft labels come from it."""

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
    """Cost of the completions."""


def shared_prompts(first: Iterable[StepLabels], second: Iterable[StepLabels]) -> set[str]:
    """Prompts that are in both."""
    return {row.prompt for row in first} & {row.prompt for row in second}


TEST_SETS = frozenset(("processbench",))
"""Sources that are published as test sets."""


def read_training_steps(steps: Path, heldout: Path) -> tuple[list[StepLabels], list[StepLabels]]:
    """Training rows and held-out rows, of two files.

    A ValueError for training rows of a test set or of a held-out problem.
    """
    rows, held = (list(lines.read_lines(path, StepLabels)) for path in (steps, heldout))
    tests = [row for row in rows if row.source in TEST_SETS]
    if tests:
        raise ValueError(
            f"expected rows to learn from, found {len(tests)} of {len(rows)} of "
            f"{tests[0].source}, such as problem '{tests[0].id}': it is a test set. Name other "
            f"`steps`."
        )
    shared = shared_prompts(rows, held)
    if shared:
        raise ValueError(
            f"expected other problems in `heldout` than in `steps`, found {len(shared)} in both, "
            f"such as {min(shared)!r:.80}. Name another heldout."
        )
    return rows, held


def split_steps(token_ids: Sequence[int], decode: Decode, separator: str) -> list[list[int]]:
    r"""Token ids of each step; joined they are `token_ids`.

    A step ends with the token that completes `separator` in the text since the step's start,
    even if that token goes on beyond it (`\n\nSo`): a token is never cut in two, and nothing is
    tokenised again. A step of white space alone belongs to the step before it; at the very
    start, where there is none, to the one that follows. So does the end-of-sequence token,
    whose text is empty (`decode` leaves special tokens out), where it stands alone.
    """
    assert separator, "expected at least one character between steps"
    steps: list[list[int]] = []
    current: list[int] = []
    for place, token_id in enumerate(token_ids, 1):
        current.append(token_id)
        text = decode(current)
        # At the start nothing stands before a blank step: it waits for the text that follows.
        if separator in (text if steps else text.lstrip()) or place == len(token_ids):
            if steps and not text.strip():
                steps[-1] += current
            else:
                steps.append(current)
            current = []
    return steps
