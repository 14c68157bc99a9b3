"""Rows of solutions with labelled reasoning steps: raw, tokenised, and counted prefixes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.records import lines

Decode = Callable[[Sequence[int]], str]
"""Tokens to text without special tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawSteps:
    """Solution, or a prefix of one, from a source; the lists have one entry per step."""

    id: str | None = None
    """The source's id of the problem; None: made from the prompt."""
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
    """Whether the last step ends the solution; otherwise it is a prefix."""
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StepLabels:
    """One row of `data/steps/<name>/<seed>/train.jsonl` and `heldout.jsonl`.

    A step's label: whether the solution up to and including this step is free of errors. The first
    error is the first step whose label is False or below 0.5; -1: there is none.
    """

    id: str
    """The problem's id."""
    index: int
    """The completion's index in its pool; 0 for imported rows."""
    prompt: str
    prompt_ids: list[int]
    steps: list[str]
    step_ids: list[list[int]]
    """Token ids of each step, as sampled (or tokenised step by step), without step tokens; joined
    they are the completion."""
    labels: list[float | None]
    """P(the solution is right up to this step); None: not labelled."""
    num_completions: list[int]
    """Number of completions from which each label is estimated; 0: it is known, or a person's."""
    true_labels: Sequence[bool | None] | None
    """Truth of each step, if known; None for a part of a step that was divided."""
    correct: bool | None
    """Whether the final answer is right; None: not known."""
    source: str
    """Source of the labels: `math_shepherd`, `truth`, `prm800k`, `math_aps`, `stepwise` (a file in
    TRL's form) or `processbench`; `none`: not labelled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixCount:
    """One row of `data/steps/<name>/<seed>/prefixes.jsonl`, from which labels are made."""

    id: str
    """The problem's id."""
    prefix_ids: list[int]
    """Token ids of the steps so far, as sampled."""
    num_completions: int
    """Number of completions drawn from the prefix."""
    num_right: int
    """Number of these that end in the right answer."""
    low: float
    """Wilson's 95 % interval of the probability of a right answer."""
    high: float
    generated_tokens: int
    """Tokens of the completions."""


def shared_prompts(first: Iterable[StepLabels], second: Iterable[StepLabels]) -> set[str]:
    """Prompts in both."""
    return {row.prompt for row in first} & {row.prompt for row in second}


TEST_SETS = frozenset(("processbench",))
"""Sources published as test sets."""


def read_training_steps(steps: Path, heldout: Path) -> tuple[list[StepLabels], list[StepLabels]]:
    """Training rows and held-out rows, from two files.

    A ValueError for training rows from a test set or for a held-out problem.
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

    A step ends with the token that completes `separator` in the text since the step's start, even
    if that token extends beyond it (`\n\nSo`): a token is never divided, and nothing is tokenised
    again. A step of only white space joins the step before it, or, at the start, the one after it.
    So does a step of only the end-of-sequence token, whose text is empty (`decode` leaves special
    tokens out).
    """
    assert separator, "expected at least one character between steps"
    steps: list[list[int]] = []
    current: list[int] = []
    for place, token_id in enumerate(token_ids, 1):
        current.append(token_id)
        text = decode(current)
        # A blank step at the start joins the text that follows.
        if separator in (text if steps else text.lstrip()) or place == len(token_ids):
            if steps and not text.strip():
                steps[-1] += current
            else:
                steps.append(current)
            current = []
    return steps
