"""An answer, what was criticised in it, and the answer written again."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision:
    """One row of `data/revise_answers/<name>/triples.jsonl`: one round on one answer."""

    id: str
    """The problem's id."""
    index: int
    """The first answer's index in its pool."""
    split: str
    """`train` or `heldout`: which of the two files its pair is for."""
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
    """As sampled, the end-of-sequence token included: never tokenised again."""
    revision_finish: Literal["stop", "length"]
