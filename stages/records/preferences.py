"""Rows of labels: preference pairs, raw and tokenised, verdicts, revisions and outcomes.

`id` is the problem's, `split` (`train` or `heldout`) the file that its pair is in, if there is one;
tokens are as sampled, the end of the sequence included: never made again from the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stages.records import lines
from stages.records.problems import OMITTED, Turn

LABELLED = "_labelled"
"""Ends the names of files of `UnpairedExample`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawPreference:
    """Preference pair as a source has it: a conversation and two answers."""

    turns: tuple[Turn, ...]
    """The prompt as a conversation; the last turn is the user's."""
    plain_prompt: str
    """The prompt as text, for a tokenizer without a chat template."""
    plain_lead: str
    """What stands between `plain_prompt` and an answer: a space after `Assistant:`, or nothing."""
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
    """Completion that is good or bad, as a source has it, without another one beside it."""

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
    """Who labelled it: `verifier`, `ai` (a judge), `constitution` (a revision over what it
    revised), `environment` (rewards of episodes), `own` (a labeller of the user's) or `human`."""
    chosen_insertions: Sequence[Sequence[Any]] | None = field(
        default=None, metadata={OMITTED: True}
    )
    """Of an episode the tokens of the environment: after how many of `chosen_ids` they stand, and
    their ids."""
    rejected_insertions: Sequence[Sequence[Any]] | None = field(
        default=None, metadata={OMITTED: True}
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class UnpairedExample:
    """Completion with a desirability label, for unpaired preference learning (KTO).

    A row of `data/pairs/<name>/train_labelled.jsonl` and `heldout_labelled.jsonl`, where people
    labelled single completions.
    """

    id: str
    prompt_ids: list[int]
    completion_ids: list[int]
    desirable: bool
    """Whether the completion should become more likely, or less."""


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
    """P(the one standing first is better) in the order A, B; None: not read."""
    p21: float | None
    """P(the one standing first is better) in the order B, A."""
    gap: float | None
    """|p12 - (1 - p21)|: 0 for a judge that does not look at the order."""
    probability: float | None
    """P(A is better): (p12 + 1 - p21) / 2."""
    option_mass: float | None
    """The smaller of the two orders' probabilities that an option is answered at all."""
    principle: int | None
    """Number of the principle drawn from the constitution; None without one."""
    prompt_version: str
    """Of the message (`short-1`); the name of a labeller of the user's."""
    dropped: str | None
    """Why it became no preference: `too_long`, `parse_failure`, `inconsistent`,
    `tie`, `low_confidence`; None: it became one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision:
    """Round of critique and revision of an answer: a row of `<seed>/triples.jsonl` of pairs."""

    id: str
    index: int
    """The first answer's index in its pool."""
    split: str
    round: int
    """From 1; the next round's `original` is this one's `revision`."""
    principle: str
    """The name of the principle that both requests were about."""
    version: str
    """Names the texts of the requests."""
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
        ValueError: there are none, but labelled completions.
    """
    if (folder / f"{side}{LABELLED}.jsonl").exists():
        raise ValueError(
            f"{folder}: expected preference pairs, found completions labelled good or bad: only a "
            f"policy with the preset kto learns from these. Name pairs, or take that preset."
        )
    return list(lines.read_lines(folder / f"{side}.jsonl", Preference))
