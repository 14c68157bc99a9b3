"""Split problems by the hash of their question.

A problem's split is a function of its question (of a conversation: of its opening) alone: not of
the seed, the order or the other problems. So the same question asked twice stays on one side,
adding rows moves no other row, and runs with different seeds are compared on the same problems.
Where so many conversations open alike that a split would be far from its share (agents' with their
instruction), it follows from their whole text before the reply.
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
    """Shares of the problems; what is left is the train split."""

    preference: float = Field(gt=0, lt=1)
    """For the preference pairs that DPO and the reward model learn from."""
    dev: float = Field(gt=0, lt=1)
    """For held-out preference pairs and for choosing between settings."""
    test: float = Field(gt=0, lt=1)
    """For the reported numbers; not used where the source has its own test split."""


def normalise_question(question: str) -> str:
    """A question without what does not change it: case, white space, Unicode variants."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


def opening(turns: Sequence[Turn]) -> str:
    """What was said before the assistant answered the first user turn, without system messages.

    A greeting of the assistant belongs to it: many conversations may begin with the same one. The
    lengths at which a file holds one conversation begin alike, and so stay on one side; so does a
    question that is asked under several system messages.
    """
    roles = [turn.role for turn in turns]
    end = [*roles, "assistant"].index("assistant", roles.index("user"))
    texts = (turn.content for turn in turns[:end] if turn.role != "system")
    return normalise_question("\n".join(texts))


def split_key(problem: Problem) -> str:
    """What its split follows from: the question, or how a conversation opens."""
    return normalise_question(problem.question) if problem.turns is None else opening(problem.turns)


def split_problems(
    problems: Iterable[Problem], shares: Shares, *, has_test: bool = False
) -> dict[str, list[Problem]]:
    """Problems by split, in their order.

    Raises:
        ValueError: a split would be empty, or the source has a test split (`has_test`) and none of
            the problems is of it: others would be reported in its place.
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
            f"data.shares add up to {total:g}: nothing is left for the train split. Lower them."
        )
    by_split = _place_all(everything, fixed, by_hash, split_key)
    if any(
        _is_far(len(by_split[name]), share * len(everything)) for name, share in by_hash.items()
    ):
        # Conversations that open alike, as agents' do with their instruction.
        whole = _place_all(everything, fixed, by_hash, _whole_key)
        by_split = whole if all(whole.values()) else by_split
    empty = [name for name, members in by_split.items() if not members]
    if empty:
        raise ValueError(
            f"{len(everything)} problems, of {len(set(map(split_key, everything)))} different "
            f"questions, leave the split(s) {', '.join(empty)} empty ({len(by_split['test'])} are "
            f"of the test). Use more problems, or change `data.shares`."
        )
    return by_split


def count_split_openings(splits: Mapping[str, Sequence[Problem]]) -> int:
    """How many openings of conversations are in several splits."""
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
    """Problems by the split that the source gives them, else by where the hash of a text falls."""
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
    """Whether a split has less than half or more than twice of its share, and not by chance."""
    return abs(count - expected) > max(expected / 2, 4 * expected**0.5, 1)


def _whole_key(problem: Problem) -> str:
    return normalise_question(problem.question)


def position(text: str, purpose: str) -> float:
    """Where from 0 to 1 a text falls: uniform over texts, another draw for each purpose."""
    return derive_seed(0, purpose, text) / 2**63


RowT = TypeVar("RowT")


def hold_out(
    rows: Sequence[tuple[str, RowT]], heldout_share: float, purpose: str
) -> dict[str, list[RowT]]:
    """Rows to learn from (`train`) and to test on (`heldout`), in their order.

    By the hash of the text beside each, as above. A ValueError if a side is empty, though the share
    is neither 0 nor 1.
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
    """SHA-256 of the files `names` in `folder`, and of every file in those that are folders."""
    paths = [folder / name for name in names]
    files = [file for path in paths for file in sorted([path, *path.rglob("*")]) if file.is_file()]
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }
