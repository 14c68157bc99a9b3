"""Load the user's own reward: one function in one file, which a row names: `on: own/<file>`."""

import importlib
import re
from collections.abc import Callable

from stages.records.problems import Prompt

PACKAGE = "stages.rewards.own"
WORD = re.compile(r"[a-z][a-z0-9_]*")
"""What a file may be called, so that Python can import it."""


def load(word: str) -> Callable[[Prompt, str], float]:
    """The function `reward` of stages/rewards/own/<word>.py.

    That file, and what it imports of `stages`, are dependencies of the rows that name it.

    Raises:
        ValueError: there is no such file or no such function in it.
    """
    name = f"{PACKAGE}.{word}"
    file = name.replace(".", "/") + ".py"
    if not WORD.fullmatch(word):
        raise ValueError(
            f"expected the name of a file in stages/rewards/own/ (lower-case letters, digits and "
            f"underscores, a letter first), found {word!r}"
        )
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ValueError(f"there is no {file}: write it, or correct the word `on`") from None
    reward: Callable[[Prompt, str], float] | None = getattr(module, "reward", None)
    if not callable(reward):
        raise ValueError(f"{file} has no function `reward(prompt: Prompt, completion: str)`")
    return reward
