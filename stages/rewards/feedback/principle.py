"""What a constitution consists of.

Constitutional AI: Bai et al. 2022, https://arxiv.org/abs/2212.08073, section 3.1 (a principle is a
pair of a critique request and a revision request) and section 4.1 (one that says which of two
answers to choose). Departures: the words are ours; one principle has all three texts, so that
the label of a comparison and the revision of an answer can be about the same thing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Principle:
    """One thing that an answer should be."""

    name: str
    """In a word or two: all that the prompts of the style `short` say of it."""
    compare: str
    """Which of two answers to choose."""
    critique: str
    """The request to criticise an answer."""
    revision: str
    """The request to write it again, given the criticism."""
