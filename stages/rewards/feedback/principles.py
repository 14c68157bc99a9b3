"""The constitutions by which answers are compared, criticised and revised.

Constitutional AI: Bai et al. 2022, https://arxiv.org/abs/2212.08073, section 3.1 (requests for a
critique and for a revision) and 4.1 (which of two answers to choose). Departures: the words are
ours; a principle has all three texts, so that labels and revisions can be about the same thing; one
constitution is about right answers, whose labels can be checked, the other about harm, as theirs.
"""

from dataclasses import dataclass
from pathlib import Path

from stages.config import read_yaml


@dataclass(frozen=True, kw_only=True, slots=True)
class Principle:
    """Principle of a constitution: a quality that an answer should have."""

    name: str
    """In a word or two: all that the prompts of the style `short` say of it."""
    compare: str
    critique: str
    revision: str


CONSTITUTIONS = {
    name: tuple(Principle(**principle) for principle in principles)
    for name, principles in read_yaml(Path(__file__).with_suffix(".yaml")).items()
}
"""By the name that params.yaml gives them."""
CORRECT = CONSTITUTIONS["correct"]
"""For questions with a right answer."""
