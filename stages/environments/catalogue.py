"""Adapters of environments by kind; each is imported when it is asked for.

A class of the user's (kinds `trl`, `tinker`, `aviary`) is the one of the file that the row names,
with the methods in `METHODS`.
"""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stages.environments.environment import Environment

ADAPTERS = {
    "reasoning_gym": "ReasoningGym", "skyrl_gym": "SkyRLGym", "textarena": "TextArena",
    "trl": "TRL", "tinker": "Tinker", "aviary": "Aviary",
}  # fmt: skip
"""Kind, the module of that name beside this file -> its class."""
METHODS = {
    "trl": ("reset", "get_reward"), "tinker": ("initial_observation", "step"),
    "aviary": ("reset", "step"),
}  # fmt: skip
"""Kind whose environment is a class of the user's -> methods of that class."""


def make_factory(
    kind: str, options: Mapping[str, Any], make: Callable[..., Any] | None = None
) -> Callable[[], Environment]:
    """What makes the environment of one episode.

    A ValueError where a package is missing, or the options are not those of the kind.

    Args:
        kind: a key of `ADAPTERS`.
        options: of the preset, as the module of the kind documents them.
        make: the user's class, of a kind in `METHODS`.
    """
    try:
        adapter = getattr(importlib.import_module(f"{__package__}.{kind}"), ADAPTERS[kind])
    except ModuleNotFoundError as error:
        raise ValueError(
            f"an environment of kind {kind} needs the package {error.name}: pip install -c "
            f"constraints.txt -e '.[environments]'"
        ) from error
    classes = () if make is None else (make,)
    factory = partial(adapter, *classes, **options)
    try:
        factory()
    except TypeError as error:
        raise ValueError(
            f"options of an environment of kind {kind}: {error}, found {dict(options)}. "
            f"stages/environments/{kind}.py describes them."
        ) from error
    return factory
