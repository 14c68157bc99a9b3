"""Split problems by the hash of their question.

A problem's split is a function of its question alone: not of the seed, the order or
the other problems. So the same question asked twice stays on one side, adding rows
moves no other row, and runs with different seeds are compared on the same problems.
"""

import unicodedata
from collections.abc import Iterable

from pydantic import Field

from stages.params import Params
from stages.records.problems import Problem
from stages.seeding import derive

SPLITS = ("train", "preference", "dev", "test")


class Shares(Params):
    """Shares of the problems; what is left is the train split."""

    preference: float = Field(gt=0, lt=1)
    """For the preference pairs that DPO and the reward model learn from."""
    dev: float = Field(gt=0, lt=1)
    """For held-out preference pairs and for choosing between settings."""
    test: float = Field(gt=0, lt=1)
    """For the reported numbers; not used where the source has its own test split."""


def normalise(question: str) -> str:
    """A question without what does not change it: case, white space, Unicode variants."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())


def split(problems: Iterable[Problem], shares: Shares) -> dict[str, list[Problem]]:
    """Problems by split, in their order.

    Raises:
        ValueError: a split would be empty, or the shares leave nothing to train on.
    """
    everything = list(problems)
    fixed_test = any(problem.split == "test" for problem in everything)
    test_share = 0.0 if fixed_test else shares.test
    if shares.preference + shares.dev + test_share >= 1:
        raise ValueError(
            f"prepare_data.shares add up to {shares.preference + shares.dev + test_share:g}: "
            f"nothing is left for the train split. Lower them."
        )
    by_split: dict[str, list[Problem]] = {name: [] for name in SPLITS}
    for problem in everything:
        name = "test" if problem.split == "test" else _place(problem, shares, test_share)
        by_split[name].append(problem)
    empty = [name for name, members in by_split.items() if not members]
    if empty:
        raise ValueError(
            f"{len(everything)} problems leave the split(s) {', '.join(empty)} empty. Use more "
            f"problems, or raise `prepare_data.shares`."
        )
    return by_split


def _place(problem: Problem, shares: Shares, test_share: float) -> str:
    position = derive(0, "split", normalise(problem.question)) / 2**63
    for name, share in (
        ("preference", shares.preference),
        ("dev", shares.dev),
        ("test", test_share),
    ):
        if position < share:
            return name
        position -= share
    return "train"
