"""Load the user's own reward, and nothing that DVC does not watch with it."""

import importlib
import re
import sys
from collections.abc import Callable

from stages.records.prompt import Prompt

PACKAGE = "stages.rewards.own"
NONE = "none"
"""The word of an entry that has none."""
WORD = re.compile(r"[a-z][a-z0-9_]*")
"""What a file may be called, so that Python can import it; recipe_entries.Module is the same."""


def load(word: str) -> Callable[[Prompt, str], float]:
    """The function `reward` of stages/rewards/own/<word>.py.

    An entry's dependency is that one file. What the file imports of `stages` must therefore be
    loaded already, by the entry point itself, whose files are dependencies too.

    Raises:
        ValueError: there is no such file or no such function in it, or it imports a file of this
            project that the entry point does not.
    """
    name = f"{PACKAGE}.{word}"
    file = name.replace(".", "/") + ".py"
    if not WORD.fullmatch(word):
        raise ValueError(
            f"expected the name of a file in stages/rewards/own/ (lower-case letters, digits and "
            f"underscores, a letter first), found {word!r}"
        )
    before = set(sys.modules)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ValueError(f"there is no {file}: write it, or correct the word `own`") from None
    unwatched = sorted(
        other for other in set(sys.modules) - before - {name, PACKAGE}
        if other.partition(".")[0] in ("stages", "flows")
    )  # fmt: skip
    if unwatched:
        raise ValueError(
            f"{file} imports {', '.join(unwatched)}, which this stage does not: an edit there "
            f"would not rerun it. Copy what you need into {file}."
        )
    reward: Callable[[Prompt, str], float] | None = getattr(module, "reward", None)
    if not callable(reward):
        raise ValueError(f"{file} has no function `reward(prompt: Prompt, completion: str)`")
    return reward
