"""Faster import of transformers: a stage starts in 3.5 s in place of 4.4.

On import, transformers lists the packages that are installed, imports some of them, and reads the
files of all its models, twice. No stage uses what it needs scipy and scikit-learn for (the losses
of object detection, assisted generation), nor what accelerate needs boto3 for (SageMaker).
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

TRANSFORMERS = "transformers.utils.import_utils"
UNUSED = {TRANSFORMERS: ("scipy", "sklearn"), "accelerate.utils.imports": ("boto3",)}
"""Module that says what is installed -> packages that it is not to name. Others may import them."""


class Finder(importlib.abc.MetaPathFinder):
    """Finder of the modules of `UNUSED`, with a loader of its own."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of such a module, or None, for the next finder."""
        if fullname not in UNUSED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Loader of a module of `UNUSED`."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, with a faster list of packages; then `UNUSED` are not available."""
        standard = importlib.metadata.packages_distributions
        importlib.metadata.packages_distributions = packages_distributions
        try:
            super().exec_module(module)
        finally:
            importlib.metadata.packages_distributions = standard
        for package in UNUSED[module.__name__]:
            setattr(module, f"is_{package}_available", _is_not_available)
        if module.__name__ == TRANSFORMERS:
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
