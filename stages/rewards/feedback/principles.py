"""The constitutions by which answers are compared, criticised and revised.

Constitutional AI: Bai et al. 2022, https://arxiv.org/abs/2212.08073, section 3.1 (requests for a
critique and for a revision) and 4.1 (which of two answers to choose). Departures: the words are
ours; a principle has all three texts, so that labels and revisions can be about the same quality;
besides harm, their topic, a constitution is about right answers, where labels can be checked.
"""

from dataclasses import dataclass
from pathlib import Path

from stages.config import read_yaml


@dataclass(frozen=True, kw_only=True, slots=True)
class Principle:
    """Principle of a constitution: a quality that an answer should have."""

    name: str
    """Name in a word or two, all that prompts of the style `short` have of the principle."""
    compare: str
    critique: str
    revision: str


CONSTITUTIONS = {
    name: tuple(Principle(**principle) for principle in principles)
    for name, principles in read_yaml(Path(__file__).with_suffix(".yaml")).items()
}
"""Name in params.yaml -> principles."""
CORRECT = CONSTITUTIONS["correct"]
"""Constitution for questions with a right answer."""
