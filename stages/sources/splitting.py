"""Split problems by the hash of their question.

A problem's split depends only on its question (in a conversation, on its opening), not on the seed,
the order or the other problems. So equal questions are in the same split, adding rows moves no
other row, and runs with different seeds are compared on the same problems. If so many conversations
have the same opening that a split would miss its share (agents with their instruction), the hash is
of all text before the reply.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from stages.config import Params
from stages.records.problems import Problem, Turn
from stages.seeding import derive_seed

SPLITS = ("train", "preference", "dev", "test")


class Shares(Params):
    """Shares of the problems; the rest is the train split."""

    preference: float = Field(gt=0, lt=1)
    """For the preference pairs that DPO and the reward model learn from."""
    dev: float = Field(gt=0, lt=1)
    """For held-out preference pairs and for choosing between settings."""
    test: float = Field(gt=0, lt=1)
    """For the reported numbers; not used if the source has a test split."""


def normalise_question(question: str) -> str:
    """A question normalised in case, white space and Unicode variants."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


def opening(turns: Sequence[Turn]) -> str:
    """Opening of a conversation: all turns before the first answer, without system messages.

    It includes a greeting of the assistant, which may be the same in many conversations. Prefixes
    of one conversation have the same opening, and so the same split; so has a question under
    several system messages.
    """
    roles = [turn.role for turn in turns]
    end = [*roles, "assistant"].index("assistant", roles.index("user"))
    texts = (turn.content for turn in turns[:end] if turn.role != "system")
    return normalise_question("\n".join(texts))


def split_key(problem: Problem) -> str:
    """Text whose hash decides the split: the question, or a conversation's opening."""
    return normalise_question(problem.question) if problem.turns is None else opening(problem.turns)


def split_problems(
    problems: Iterable[Problem], shares: Shares, *, has_test: bool = False
) -> dict[str, list[Problem]]:
    """Problems by split, in their order.

    Raises:
        ValueError: a split would be empty; only some problems of the dev or test split have gold
            answers; or the source has a test split (`has_test`) and none of the problems is of it:
            others would be reported in its place.
    """
    everything = list(problems)
    if has_test and all(problem.split != "test" for problem in everything):
        raise ValueError(
            "expected usable rows in the source's test split, found none: each was rejected "
            "(quarantine), or none is within `share`. Correct the test split, or name the train "
            "split's files alone as `path`: then test problems are taken from them."
        )
    fixed = {problem.split for problem in everything} & {"dev", "test"}
    by_hash = {name: 0.0 if name in fixed else getattr(shares, name) for name in SPLITS[1:]}
    if (total := sum(by_hash.values())) >= 1:
        raise ValueError(
            f"data.shares add up to {total:g}, which leaves none for the train split. Lower them."
        )
    by_split = _place_all(everything, fixed, by_hash, split_key)
    if any(
        _is_far(len(by_split[name]), share * len(everything)) for name, share in by_hash.items()
    ):
        # Conversations with the same opening, such as an agent's instruction.
        whole = _place_all(
            everything, fixed, by_hash, lambda problem: normalise_question(problem.question)
        )
        by_split = whole if all(whole.values()) else by_split
    empty = [name for name, members in by_split.items() if not members]
    if empty:
        raise ValueError(
            f"{len(everything)} problems, of {len(set(map(split_key, everything)))} different "
            f"questions, leave the split(s) {', '.join(empty)} empty ({len(by_split['test'])} are "
            f"of the test). Use more problems, or change `data.shares`."
        )
    for name in ("dev", "test"):
        num_gold = sum(problem.answer is not None for problem in by_split[name])
        if 0 < num_gold < (number := len(by_split[name])):
            raise ValueError(
                f"policies are compared on problems of one kind: expected a gold answer of all "
                f"problems of split {name} or of none, found {num_gold} with one and "
                f"{number - num_gold} without. Leave one of the two out of `data.source`"
            )
    return by_split


def count_split_openings(splits: Mapping[str, Sequence[Problem]]) -> int:
    """Number of openings of conversations in several splits."""
    places: dict[str, set[str]] = {}
    for name, problems in splits.items():
        for problem in problems:
            if problem.turns is not None:
                places.setdefault(opening(problem.turns), set()).add(name)
    return sum(len(names) > 1 for names in places.values())


def _place_all(
    problems: Iterable[Problem], fixed: Collection[str | None], shares: Mapping[str, float],
    key: Callable[[Problem], str],
) -> dict[str, list[Problem]]:  # fmt: skip
    """Problems by split: the source's, or else by the hash of a text."""
    by_split: dict[str, list[Problem]] = {name: [] for name in SPLITS}
    for problem in problems:
        name, place = "train", position(key(problem), "split")
        if problem.split in fixed:
            name, place = str(problem.split), 1.0
        for split, share in shares.items():
            if 0 <= place < share:
                name = split
            place -= share
        by_split[name].append(problem)
    return by_split


def _is_far(count: int, expected: float) -> bool:
    """Whether a split has less than half or more than twice its share, beyond chance."""
    return abs(count - expected) > max(expected / 2, 4 * expected**0.5, 1)


def position(text: str, purpose: str) -> float:
    """Position of a text from 0 to 1, uniform over texts, independent for each purpose."""
    return derive_seed(0, purpose, text) / 2**63


RowT = TypeVar("RowT")


def hold_out(
    rows: Sequence[tuple[str, RowT]], heldout_share: float, purpose: str
) -> dict[str, list[RowT]]:
    """Training rows (`train`) and held-out rows (`heldout`), in their order.

    The side is by the hash of the text with each row. A ValueError if a side is empty, unless the
    share is 0 or 1.
    """
    sides: dict[str, list[RowT]] = {"train": [], "heldout": []}
    for text, row in rows:
        sides["heldout" if position(text, purpose) < heldout_share else "train"].append(row)
    empty = [side for side, members in sides.items() if not members]
    if empty and 0 < heldout_share < 1:
        raise ValueError(
            f"{len(rows)} rows leave {' and '.join(empty)} empty. Use a file with more problems "
            f"that fit (max_tokens), or change heldout_share."
        )
    return sides


def file_digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the files `names` in `folder`, and of every file in folders among them."""
    paths = [folder / name for name in names]
    files = [file for path in paths for file in sorted([path, *path.rglob("*")]) if file.is_file()]
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }
