"""Files that the user's code opens: each is a dependency of the rows that name it, or refused.

DVC knows the user's code by `data/own/<file>` (`trace_code`): its imports, and the files that its
rows list. An edit of another file would go unnoticed, and old results would stand as new ones. So a
hook listens to Python's audit events. A file opened for reading below the checkout or the home
folder, while the user's code is on the stack, has to be one of these files, one of data/prompts, on
which every row depends, or a file of the environment: Python, its packages, the code of this
package, or a hidden folder such as `~/.cache`.
So a module with a computed name is refused, too. Files that C, Rust or other programs open are not
seen.
"""

import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from stages.code_origin import OWN, is_of_library, is_ours

PROMPTS = ("data", "prompts")
CODE = (".py", ".yaml", ".j2")
"""Ends of the names of files that are code (`trace_code`)."""


class UnlistedFileError(SystemExit):
    """Error: the user's code opened a file that is not a dependency.

    Not a subclass of Exception: as an error of one completion or episode it might be caught, and
    the stage would succeed.
    """


_allowed: dict[str, tuple[str, frozenset[str]]] = {}
"""File of the user's code -> its word in `own/<word>`, and the files that it may open."""
_state: dict[str, Path | None] = {"checkout": None}
"""The working folder at the first `watch`: the user's code may change it; None: no watch."""


def watch(own: Path, files: Collection[str] = ()) -> None:
    """Refuse from now on files that a file in `own/` opens and no row lists.

    Without its digests, as outside of the pipeline, nothing is refused. `files`: further files that
    DVC knows.
    """
    digests, word = Path("data", OWN, own.stem), own.stem
    if not digests.is_file():
        _allowed.pop(str(own), None)
        return
    names = [str(own), *json.loads(digests.read_text(encoding="utf-8")), *files]
    paths = frozenset(path(name) for name in names for path in (os.path.abspath, os.path.realpath))
    for path in paths:
        if path.endswith(".py") and not is_ours(Path(path)) and not is_of_library(Path(path)):
            _allowed[path] = word, paths
    if _state["checkout"] is None:
        _state["checkout"] = Path.cwd()
        sys.addaudithook(_listen)


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise an UnlistedFileError if a file is opened that may not be."""
    if event != "open" or not isinstance(arguments[0], str | bytes):
        return
    flags = arguments[2] or 0
    if flags & os.O_ACCMODE == os.O_WRONLY or flags & os.O_TRUNC:  # nothing is read
        return
    path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100 - outputs are links
    if path.endswith(".pyc"):  # the source of `a/__pycache__/b.cpython-312.pyc`
        path = str(Path(path).parents[1] / f"{Path(path).name.partition('.')[0]}.py")
    name = _name_unknown(Path(path))
    if name is None or not Path(path).is_file() or (source := _find_reader()) is None:
        return
    word, paths = _allowed[source]
    if path not in paths and os.path.realpath(path) not in paths:
        raise UnlistedFileError(
            f"Error: {os.path.relpath(source)} opens {name}, which is no dependency of its rows: "
            f"an edit of it would go unnoticed, and old results would stand as new ones. List it "
            f"where `own/{word}` is named, as `files: [{name}]`; an output of another stage cannot "
            f"be read"
        )


def _name_unknown(path: Path) -> str | None:
    """A file as a row would name it; None if it is a prompt's or of the environment."""
    checkout, home = _state["checkout"], Path.home()
    root = next((root for root in (checkout, home) if root and path.is_relative_to(root)), None)
    if root is None or root == Path(root.anchor):
        return None
    parts = path.relative_to(root).parts
    is_prompt = root == checkout and parts[:2] == PROMPTS
    is_code = is_ours(path) and path.suffix in CODE
    is_hidden = any(part.startswith(".") for part in parts)
    in_prefix = any(path.is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))
    if is_prompt or is_hidden or in_prefix or is_code or is_of_library(path):
        return None
    return "/".join(parts if root == checkout else ("~", *parts))


def _find_reader() -> str | None:
    """The innermost file of the user's code on the stack."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename not in _allowed:
        frame = frame.f_back
    return None if frame is None else frame.f_code.co_filename
