"""Python files of the user's own, which rows of params.yaml name: rewards and environments."""

import importlib
import re
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from stages import opened_files
from stages.code_origin import OWN, PACKAGE, is_of_library, is_ours


def load_own_module(folder: str, word: str, files: Collection[str] = ()) -> ModuleType:
    """The module stages/<folder>/own/<word>.py; a ValueError where there is none.

    That file, what it imports (`own_imports`), and the files that rows list are dependencies of the
    rows that name it; that it opens no other is seen to (`opened_files`). `files`: others of which
    DVC knows.
    """
    name, path = f"stages.{folder}.own.{word}", f"stages/{folder}/own/{word}.py"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", word):
        raise ValueError(
            f"expected the name of a file in stages/{folder}/own/ (lower-case letters, digits and "
            f"underscores, a letter first), found {word!r}"
        )
    opened_files.watch(PACKAGE / folder / OWN / f"{word}.py", files)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ValueError(f"there is no {path}: write it, or correct the word `on`") from None


@contextmanager
def exit_is_error() -> Iterator[None]:
    """Context in which `sys.exit` is a RuntimeError: it would end the stage as if it had finished.

    A subclass of SystemExit goes through: it is a request to end this process.
    """
    try:
        yield
    except SystemExit as error:
        if type(error) is not SystemExit:
            raise
        text = f"sys.exit({error.code!r}), which would end the whole run: raise an error instead"
        raise RuntimeError(text).with_traceback(error.__traceback__) from error


def describe_error(error: BaseException) -> str:
    """Type and message of an error in the user's code, and the file and line that raised it.

    Of the calls that led to it the last one in a file of the user's counts, since the line of a
    library says less; then the last one in a library. Without either the error is this package's:
    no line, and a ValueError is a sentence without its type.
    """
    calls = traceback.extract_tb(error.__traceback__)
    files = [(Path(call.filename), call.lineno) for call in calls]
    outside = [(path, line) for path, line in files if not is_ours(path)]
    written = [(path, line) for path, line in outside if not is_of_library(path)]
    if not outside and isinstance(error, ValueError):
        return str(error)
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    for path, line in (written or outside)[-1:]:
        text += f" ({path.name}, line {line})"
    return text
