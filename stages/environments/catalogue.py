"""Classes of environments by kind; an adapter is imported when it is asked for.

A class of the user's (kinds `own`, `trl`, `tinker`, `aviary`) is the one of the file that the row
names, with the methods in `METHODS`.
"""

import ast
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stages.config import suggest
from stages.environments.environment import Environment

METHODS = {
    "own": ("start", "step"), "trl": ("reset", "get_reward"),
    "tinker": ("initial_observation", "step"), "aviary": ("reset", "step"),
}  # fmt: skip
"""Kind whose environment is a class of the user's -> methods of that class."""

TAKES_ROW = ("tinker", "aviary")
"""Kinds whose class is called with a row before the options."""
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def make_factory(
    kind: str, options: Mapping[str, Any], make: Callable[..., Any] | None = None
) -> Callable[[], Environment]:
    """What makes the environment of one episode.

    A ValueError where a package is missing, or the options are not those of the kind.

    Args:
        kind: the name of a module beside this file.
        options: of the preset, as the module of the kind documents them.
        make: the user's class, of a kind in `METHODS`.
    """
    try:
        build: Any = make if kind == "own" else import_adapter(kind)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"an environment of kind {kind} needs the package {error.name}: pip install -c "
            f"constraints.txt -e '.[environments]'"
        ) from error
    classes = () if make in (None, build) else (make,)
    factory = partial(build, *classes, **options)
    try:
        factory()
    except TypeError as error:
        raise ValueError(
            f"options of an environment of kind {kind}: {error}, found {dict(options)}. "
            f"{build.__module__.replace('.', '/')}.py describes them."
        ) from error
    return factory


def check_options(kind: str, path: Path, options: Collection[str]) -> Iterator[str]:
    """Options of an environment that its class in the file `path` does not take, or lacks.

    The file is read, and not imported, which would run it: a class that takes all keywords, or gets
    its arguments from elsewhere (a parent, a decorator), passes here.
    """
    methods = METHODS.get(kind, METHODS["own"])
    makes: list[ast.FunctionDef] = []
    try:
        body = ast.parse(path.read_bytes()).body if path.is_file() else []
    except (SyntaxError, ValueError) as error:
        yield f"{path} is no Python: {error}"
        return
    for node in body:
        if isinstance(node, ast.ClassDef):
            parts = {part.name: part for part in node.body if isinstance(part, DEFINITIONS)}
            make = parts.get("__init__")
            if parts.keys() >= {*methods} and isinstance(make, ast.FunctionDef):
                makes.append(make)
    if len(makes) != 1 or makes[0].args.kwarg is not None:
        return
    arguments, num_first = makes[0].args, 2 if kind in TAKES_ROW else 1
    positional = [*arguments.posonlyargs, *arguments.args]
    first = positional[: len(positional) - len(arguments.defaults)]
    needed = [each.arg for each in first][num_first:]
    needed += [
        each.arg
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    taken = [each.arg for each in (*positional[num_first:], *arguments.kwonlyargs)]
    yield from (
        f"unknown option {name!r}{suggest(name, taken)}" for name in options if name not in taken
    )
    yield from (f"{name!r} is missing" for name in needed if name not in options)


def import_adapter(kind: str) -> Callable[..., Environment]:
    """The class of a kind. Its package may be missing, which is no matter to other kinds."""
    match kind:
        case "reasoning_gym":
            from stages.environments.reasoning_gym import ReasoningGym as Adapter
        case "skyrl_gym":
            from stages.environments.skyrl_gym import SkyRLGym as Adapter
        case "textarena":
            from stages.environments.textarena import TextArena as Adapter
        case "trl":
            from stages.environments.trl import Trl as Adapter
        case "tinker":
            from stages.environments.tinker import Tinker as Adapter
        case "aviary":
            from stages.environments.aviary import Aviary as Adapter
        case _:
            raise ValueError(f"expected a kind of environment, found {kind!r}")
    return Adapter
