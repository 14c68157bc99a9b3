"""Rows of labels: preference pairs, raw and tokenised, verdicts, revisions and outcomes.

`id` is the problem's. `split` (`train` or `heldout`) is the file of its pair, if there is one.
Tokens are as sampled, with the end-of-sequence token, and never tokenised again from the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stages.records import lines
from stages.records.problems import OMITTED, Turn

LABELLED = "_labelled"
"""Suffix of the names of files of `UnpairedExample`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawPreference:
    """Preference pair as a source has it: a conversation and two answers."""

    turns: tuple[Turn, ...]
    """The prompt as a conversation; the last turn is the user's."""
    plain_prompt: str
    """The prompt as text, for a tokenizer without a chat template."""
    plain_lead: str
    """Text between `plain_prompt` and an answer: a space after `Assistant:`, or nothing."""
    chosen: str
    rejected: str
    probability: float
    """Probability that `chosen` is the better one."""
    line: int
    """Line of the row in its file, from 1."""
    file: str
    """The file's name in its folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawLabelled:
    """Single completion that is labelled good or bad, as a source has it."""

    turns: tuple[Turn, ...]
    plain_prompt: str
    plain_lead: str
    completion: str
    desirable: bool
    line: int
    file: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Preference:
    """Preference pair: a row of `data/pairs/<name>/<seed>/train.jsonl` and `heldout.jsonl`."""

    id: str
    prompt: str
    prompt_ids: list[int]
    chosen: str
    chosen_ids: list[int]
    rejected: str
    rejected_ids: list[int]
    probability: float
    """Probability that `chosen` is the better one: 1.0 for a verifier's label."""
    source: str
    """Labeller: `verifier`, `ai` (a judge), `constitution` (a revision over the first answer),
    `environment` (rewards of episodes), `own` (the user's labeller) or `human`."""
    chosen_insertions: Sequence[Sequence[Any]] | None = field(
        default=None, metadata={OMITTED: True}
    )
    """The environment's tokens in an episode: the number of `chosen_ids` before them, and their
    ids."""
    rejected_insertions: Sequence[Sequence[Any]] | None = field(
        default=None, metadata={OMITTED: True}
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class UnpairedExample:
    """Completion with a desirability label, for unpaired preference learning (KTO).

    A row of `data/pairs/<name>/train_labelled.jsonl` and `heldout_labelled.jsonl`, if people
    labelled single completions.
    """

    id: str
    prompt_ids: list[int]
    completion_ids: list[int]
    desirable: bool
    """Whether the completion should become more likely; else less likely."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Completion with its verdict, for an outcome reward model."""

    id: str
    prompt_ids: list[int]
    completion_ids: list[int]
    right: bool
    weight: float
    """Weight of its loss; the sum over a problem's outcomes does not depend on their number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Judgement of a pair in both orders: a row of `data/pairs/<name>/<seed>/verdicts.jsonl`."""

    split: str
    id: str
    index_a: int
    """Index in the pool of completion A, which stands first in the first order."""
    index_b: int
    p12: float | None
    """P(the first is better) in the order A, B; None: not judged."""
    p21: float | None
    """P(the first is better) in the order B, A."""
    gap: float | None
    """Disagreement of the orders, |p12 - (1 - p21)|: 0 for a judge that ignores the order."""
    probability: float | None
    """P(A is better): (p12 + 1 - p21) / 2."""
    option_mass: float | None
    """Probability that any option is answered, the smaller of the two orders'."""
    principle: int | None
    """Number of the principle drawn from the constitution; None without one."""
    prompt_version: str
    """Version of the message (`short-1`), or the name of a user's labeller."""
    dropped: str | None
    """Reason why there is no preference: `too_long`, `parse_failure`, `inconsistent`, `tie`,
    `low_confidence`; None: there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision:
    """Round of critique and revision of an answer: a row of `<seed>/triples.jsonl` of pairs."""

    id: str
    index: int
    """The first answer's index in its pool."""
    split: str
    round: int
    """Round, from 1; the next round's `original` is this one's `revision`."""
    principle: str
    """Name of the principle in both requests."""
    version: str
    """Version of the texts of the requests."""
    original: str
    critique: str
    critique_ids: list[int]
    critique_finish: Literal["stop", "length"]
    revision: str
    revision_ids: list[int]
    revision_finish: Literal["stop", "length"]


def read_pairs(folder: Path, side: str) -> list[Preference]:
    """The pairs of a side, `train` or `heldout`.

    Raises:
        ValueError: there are labelled completions instead of pairs.
    """
    if (folder / f"{side}{LABELLED}.jsonl").exists():
        raise ValueError(
            f"{folder}: expected preference pairs, found completions labelled good or bad: only a "
            f"policy with the preset kto learns from these. Name pairs, or take that preset."
        )
    return list(lines.read_lines(folder / f"{side}.jsonl", Preference))
