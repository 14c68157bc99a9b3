"""A faster start of a stage's process: modules that are imported for nothing stay out.

transformers imports, for parts that no stage uses, torch's compiler, its distributed tensors, paged
attention for continuous batching, scipy's optimisers and, where MLflow brought it, scikit-learn:
more than a third of the seconds before a stage works. `lighten`, which stages/__init__.py calls in
a process of `python -m stages.<stage>` alone, puts empty modules in their place, whose every name
is a class that does nothing, or for the compiler a decorator that returns its function. vLLM needs
the real modules: its engine calls `give_back` before it imports.
"""

import copy
import functools
import gc
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

EMPTY = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.nn.attention.flex_attention",
    "transformers.generation.continuous_batching",
)
"""Modules without content, with all below them, for as long as the process lives."""
ABSENT = ("sklearn", "scipy.optimize")
"""Not there while the stage imports; transformers asks for them, and does without."""
COLLECTOR = gc.get_threshold()
"""The garbage collector's thresholds as the interpreter has them. Looking through the million
objects of the imports for garbage, again and again, takes a fifth of the start-up."""


class Distributions(dict[str, list[str]]):
    """What `packages_distributions()` is, for transformers, which asks for the version of packages.

    What every distribution installed is read where none has the package's name, which transformers
    tries anyhow, and for flash-attn, which comes in several.
    """

    def get(self, name: str, default: Any = None) -> Any:
        """The distributions that a package may be of."""
        if not self and importlib.util.find_spec(name) is not None:
            try:
                importlib.metadata.distribution(name)
                same_name = not name.startswith("flash_attn")
            except importlib.metadata.PackageNotFoundError:
                same_name = False
            if not same_name:
                self.update(_packages_distributions())
        return super().get(name, default)


_packages_distributions = importlib.metadata.packages_distributions


def _distributions() -> Mapping[str, list[str]]:
    asker = sys._getframe(1).f_globals["__name__"]
    return Distributions() if asker.startswith("transformers.") else _packages_distributions()


STRUCTURE = "transformers.utils.import_utils"
"""Reads which names each file of transformers' models has: twice, a third of a second each time."""


def _read_once(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`create_import_structure_from_path`, which is asked for the models by path and by file."""
    cached = functools.cache(function)
    # The caller rearranges what it gets.
    return lambda path: copy.deepcopy(cached(str(path).removesuffix("/__init__.py")))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `EMPTY`, for a time a stand-in of `scipy.optimize`, and `STRUCTURE`."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = (*EMPTY, "scipy.optimize")

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if any(fullname == name or fullname.startswith(f"{name}.") for name in self.names):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if fullname != STRUCTURE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                name = "create_import_structure_from_path"
                setattr(module, name, _read_once(getattr(module, name)))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        compiler = module.__name__.startswith("torch._dynamo")

        def attribute(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            if compiler and name[0].islower():
                return _Decorator()
            stand_in = type(name, (), {"__init__": lambda *_, **__: None})
            setattr(module, name, stand_in)
            return stand_in

        module.__getattr__ = attribute  # type: ignore[method-assign]


class _Decorator:
    """A function or a module of the compiler, where nothing is compiled.

    Called with a function it returns that, with arguments alone what does so; its classes have no
    instances.
    """

    def __call__(self, function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
        return function if callable(function) else (lambda decorated: decorated)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


_finder = _Finder()


def lighten() -> None:
    """Leave out what no stage uses, and look for garbage seldom, while the stage imports."""
    gc.set_threshold(50_000, 20, 50)
    sys.meta_path.insert(0, _finder)
    importlib.metadata.packages_distributions = _distributions
    sys.modules["sklearn"] = None  # type: ignore[assignment]


def imported() -> None:
    """The stage has been imported: collect garbage as ever; `ABSENT` may be imported again."""
    gc.freeze()  # what is imported by now lives as long as the process
    gc.set_threshold(*COLLECTOR)
    _finder.names = EMPTY
    importlib.metadata.packages_distributions = _packages_distributions
    for name in ABSENT:
        _forget(name)


def give_back() -> None:
    """Real modules from here on, where the empty ones stood."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in (*EMPTY, *ABSENT):
        _forget(name)


def _forget(name: str) -> None:
    """Remove the stand-ins of a module and of those below it."""
    inside = [key for key in sys.modules if key == name or key.startswith(f"{name}.")]
    for module_name in inside:
        module = sys.modules[module_name]
        if module is None or getattr(module, "__loader__", None) is _finder:
            del sys.modules[module_name]
            parent, _, last = module_name.rpartition(".")
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(last, None)
