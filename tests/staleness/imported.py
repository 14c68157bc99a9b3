"""Which of our files Python imports for an entry point, those inside of functions included.

    python imported.py stages.train_dpo stages.sample ...     in the repository; prints JSON

Nothing here asks trace_code or its parser of imports: Python imports every module, and who asked
for which is noted as it happens; of imports within functions, which do not happen then, each is
made. What an entry point reads is all that is reached from it, with the packages around.
"""

import ast
import builtins
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGES = ("stages", "studies")
OPTIONAL = ("vllm", "reasoning_gym", "skyrl_gym", "textarena", "aviary")
"""Of extras that may not be installed: a module whose every name is a class stands in."""
ASKED: dict[str, set[str]] = defaultdict(set)
"""Module -> modules, or names in them, that it imported."""


class Anything(type):
    """A class to inherit from, with type arguments and every method."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def __getitem__(cls, _):
        return cls


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what no one else does of `OPTIONAL`."""

    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] in OPTIONAL:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module):
        def attribute(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Anything(name, (), {})

        module.__getattr__ = attribute


def is_ours(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES


def watch() -> None:
    """Note who imports what from now on."""
    real = builtins.__import__

    def noted(
        name: str, globals_: Any = None, locals_: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        if is_ours(name):
            asker = (globals_ or {}).get("__name__", "")
            ASKED[asker] |= {name, *(f"{name}.{item}" for item in fromlist or ())}
        return real(name, globals_, locals_, fromlist, level)

    builtins.__import__ = noted


def later(path: Path) -> Iterator[str]:
    """What the functions of a file import when they are called."""
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                yield from (name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{name.name}" for name in node.names)


def import_all(entries: list[str]) -> None:
    """Import the entry points, then what functions would, until no module is new."""
    for entry in entries:
        importlib.import_module(entry)
    done: set[str] = set()
    while new := {name for name in sys.modules if is_ours(name)} - done:
        done |= new
        for asker in new:
            file = getattr(sys.modules[asker], "__file__", None)
            for name in later(Path(file)) if file else ():
                if is_ours(name):
                    ASKED[asker].add(name)
                    try:
                        importlib.import_module(name)
                    except ModuleNotFoundError as error:
                        # A function or class of a module.
                        if not name.startswith(str(error.name)):
                            raise


def files(entry: str) -> list[str]:
    """What it reads, relative to the repository."""
    reached, waiting = set(), [entry]
    while waiting:
        name = waiting.pop()
        if name not in reached and name in sys.modules:
            reached.add(name)
            waiting += [*ASKED[name], name.rpartition(".")[0]]
    result = {getattr(sys.modules[name], "__file__", None) for name in reached}
    return sorted(Path(item).relative_to(Path.cwd()).as_posix() for item in result if item)


def main(entries: list[str]) -> None:
    sys.path.insert(0, str(Path.cwd()))
    sys.meta_path.append(StandIn())
    watch()
    import_all(entries)
    print(json.dumps({entry: files(entry) for entry in entries}))


if __name__ == "__main__":
    main(sys.argv[1:])
