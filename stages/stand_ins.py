"""Import of modules for their declarations, with stand-ins for the libraries that compute.

The check of the plan reads the `Config` of every entry point. Its module imports torch and
transformers, which takes 4 s of CPU and which a `Config` does not need. Stand-ins replace them, as
Sphinx does for modules that it documents
(https://www.sphinx-doc.org/en/master/usage/extensions/autodoc.html, `autodoc_mock_imports`): they
serve as annotation, base class, decorator or constant, all that a module needs of a library while
it is imported. Computing with one is an error, so such a process can only check.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LIBRARIES = frozenset(
    {"dvc", "jaxtyping", "peft", "safetensors", "scipy", "tokenizers", "torch", "transformers"}
)  # fmt: skip


class _StandIn(type):
    def __getattr__(cls, name: str) -> "_StandIn":
        return _make_attribute(name)

    def __getitem__(cls, _: object) -> Any:
        return Any

    def __or__(cls, _: object) -> Any:  # in annotations
        return Any

    __ror__ = __or__

    def __call__(cls, *args: Any, **_: Any) -> Any:
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            raise RuntimeError(
                f"{cls.__name__}: expected no computation in a check of the plan, found a call of "
                f"one of {', '.join(sorted(LIBRARIES))}: compute in the stage, or remove it from "
                f"{__name__}"
            )
        return args[0] if len(args) == 1 and callable(args[0]) else cls  # a decorator's function


def _make_attribute(name: str) -> _StandIn:
    if name.startswith("__"):
        raise AttributeError(name)
    return _StandIn(name, (), {})


class _Finder(Loader):
    def find_spec(self, module: str, *_: object) -> ModuleSpec | None:
        is_listed = module.partition(".")[0] in LIBRARIES
        return ModuleSpec(module, self, is_package=True) if is_listed else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(__getattr__=_make_attribute, __path__=[module.__name__])


@contextmanager
def importing_declarations() -> Iterator[None]:
    """Context in which imports of `LIBRARIES` give stand-ins; afterwards they are real again."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name, module in [*sys.modules.items()]:
            if getattr(module, "__loader__", None) is finder:
                del sys.modules[name]
