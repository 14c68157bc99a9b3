"""Python files of the user's own, which rows of params.yaml name: rewards and environments."""

import importlib
import re
from types import ModuleType


def load_own_module(folder: str, word: str) -> ModuleType:
    """The module stages/<folder>/own/<word>.py; a ValueError where there is none.

    That file, and what it imports of `stages`, are dependencies of the rows that name it.
    """
    name, path = f"stages.{folder}.own.{word}", f"stages/{folder}/own/{word}.py"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", word):
        raise ValueError(
            f"expected the name of a file in stages/{folder}/own/ (lower-case letters, digits and "
            f"underscores, a letter first), found {word!r}"
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ValueError(f"there is no {path}: write it, or correct the word `on`") from None
