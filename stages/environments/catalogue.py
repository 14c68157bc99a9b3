"""Classes of environments by kind; an adapter is imported only when it is used.

A user's class (kinds `own`, `trl`, `tinker`, `aviary`) is the one in the row's file with the
methods in `METHODS`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stages.environments.environment import Environment

METHODS = {
    "own": ("start", "step"), "trl": ("reset", "get_reward"),
    "tinker": ("initial_observation", "step"), "aviary": ("reset", "step"),
}  # fmt: skip
"""Kind whose environment is a user's class -> methods of that class."""
TAKE_ROW = ("tinker", "aviary")
"""Kinds whose class is made anew for each episode, with the row as its first argument."""


def make_factory(
    kind: str, options: Mapping[str, Any], make: Callable[..., Any] | None = None
) -> Callable[[], Environment]:
    """Function that makes the environment of an episode.

    A ValueError if a package is missing, or the options do not fit the kind.

    Args:
        kind: name of a module beside this file.
        options: of the preset, as the module of the kind documents them.
        make: the user's class, for a kind in `METHODS`.
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


def import_adapter(kind: str) -> Callable[..., Environment]:
    """The class of a kind, whose package may be missing without harm to other kinds."""
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
