"""Python files of the user, which rows, presets and `data.source` name as `own/<file>`.

| file in | has | named by |
|---|---|---|
| `stages/rewards/own/` | `reward`; `prefer`, a labeller of pairs | `on` of a rule; `by` of pairs |
| `stages/environments/own/` | a class | `on` of an environment |
| `stages/algorithms/own/` | `surrogate`, `advantage` | a preset of policies |
| `stages/sources/own/` | `rows` | `data.source.kind` |
"""

import importlib
import inspect
import locale
import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from stages import opened_files
from stages.code_origin import OWN, PACKAGE, is_of_library, is_ours

logger = logging.getLogger(__name__)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM)
"""Signals that stop a stage, or end a call that takes too long."""
FOLDERS = ("rewards", "environments", "algorithms", "sources")
"""Folders of stages/ that have a subfolder `own`."""
IN_PRESETS = ("surrogate", "advantage")
"""Keys of presets that may name a file in stages/algorithms/own/, and the function in it."""
NAME = re.compile(r"own/([a-z][a-z0-9_]*)")
"""Name of a user's file in a row, a preset or a source."""
_set_locale = partial(locale.setlocale, locale.LC_ALL)
Setting = tuple[Callable[[], Any], Callable[[Any], object]]
"""Getter and setter of a setting of this process."""
_changed: set[str] = set()
"""Settings whose change has been logged."""


def get_own_word(name: object) -> str | None:
    """`mine` for `own/mine`; None: the name is not that of a user's file."""
    match = NAME.fullmatch(name) if isinstance(name, str) else None
    return None if match is None else match[1]


def load_own_function(
    folder: str,
    word: str,
    name: str,
    arguments: Sequence[str],
    keywords: Sequence[str] = (),
    files: Collection[str] | None = (),
) -> Callable[..., Any]:
    """The function `name` of stages/<folder>/own/<word>.py; a ValueError if it has none."""
    module, file = load_own_module(folder, word, files), f"stages/{folder}/own/{word}.py"
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{file} has no function `{name}({', '.join((*arguments, *keywords))})`")
    check_arguments(function, file, arguments, keywords)
    return function


def check_arguments(
    function: Callable[..., object],
    place: str,
    arguments: Sequence[str],
    keywords: Sequence[str] = (),
) -> None:
    """Raise a ValueError unless a function of the user's can be called with these arguments."""
    try:
        # The signature of a decorator's wrapper, which is what is called.
        signature = inspect.signature(function, follow_wrapped=False)
    except ValueError:  # a function in C may have none
        return
    try:
        signature.bind(*arguments, **dict.fromkeys(keywords))
    except TypeError as error:
        by_name = f", and by name {', '.join(keywords)}" if keywords else ""
        raise ValueError(
            f"{place}: expected a function of the arguments {', '.join(arguments)}{by_name}, "
            f"found {signature}"
        ) from error
    if inspect.iscoroutinefunction(function):
        raise ValueError(f"{place}: expected `def`, found `async def`: call `asyncio.run` in it")


def load_own_module(folder: str, word: str, files: Collection[str] | None = ()) -> ModuleType:
    """The module stages/<folder>/own/<word>.py; a ValueError if it does not exist.

    A row that names it depends on that file, its imports (`own_imports`) and the files that the row
    lists; if it opens any other file, `opened_files` refuses it. `files`: other files that DVC
    knows; None: DVC knows none yet (before `trace_code`), so nothing is refused.
    """
    name, path = f"stages.{folder}.own.{word}", f"stages/{folder}/own/{word}.py"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", word):
        raise ValueError(
            f"expected the name of a file in stages/{folder}/own/ (lower-case letters, digits and "
            f"underscores, a letter first), found {word!r}"
        )
    if files is not None:
        opened_files.watch(PACKAGE / folder / OWN / f"{word}.py", files)
    try:
        with restored_settings(), exit_is_error():
            return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise ValueError(f"there is no {path}: write it, or correct its name") from None
        raise ValueError(f"{path} cannot be imported: {describe_error(error)}") from error


@contextmanager
def exit_is_error() -> Iterator[None]:
    """Context that turns `sys.exit` into a RuntimeError: the stage would end as if it had finished.

    A subclass of SystemExit goes through: it is a request to end this process.
    """
    try:
        yield
    except SystemExit as error:
        if type(error) is not SystemExit:
            raise
        text = f"sys.exit({error.code!r}), which would end the whole run: raise an error instead"
        raise RuntimeError(text).with_traceback(error.__traceback__) from error


@contextmanager
def restored_settings() -> Iterator[None]:
    """Context for the user's code, which restores the settings of this process afterwards.

    `sys.exit` is an error in it (`exit_is_error`), also while a module is imported. The training
    depends on the settings (`list_settings`), and no input key would record a change. The first
    change of each is logged. Global random generators stay as the code left them: nothing here
    draws from them (`environments/isolated_calls` is for code that does).
    """
    before = {name: read() for name, (read, _) in list_settings().items()}
    try:
        with exit_is_error():
            yield
    finally:
        for name, (read, write) in list_settings().items():
            if name in before and (after := read()) != before[name]:
                write(before[name])
                if name not in _changed:
                    _changed.add(name)
                    logger.warning(
                        "your code, or a library that it calls, left the %s of this process "
                        "changed, from %s to %s: it was put back, since the training depends on it",
                        name, before[name], after,
                    )  # fmt: skip


def list_settings() -> dict[str, Setting]:
    """Settings of this process that a training depends on, by name.

    Settings of torch only if it has been imported: nothing is trained without it. Signal handlers
    only in the main thread: no other can set them.
    """
    settings: dict[str, Setting] = {
        "working folder": (_get_folder, os.chdir), "locale": (_set_locale, _set_locale),
        "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    }  # fmt: skip
    if threading.current_thread() is threading.main_thread():
        settings |= {
            f"handler of {number.name}": (
                partial(signal.getsignal, number),
                partial(signal.signal, number),
            )
            for number in SIGNALS
        }
    if (torch := sys.modules.get("torch")) is not None:
        settings |= {
            "gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
            "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
            "default device": (torch.get_default_device, torch.set_default_device),
            "number of threads": (torch.get_num_threads, torch.set_num_threads),
            "deterministic mode": (
                torch.get_deterministic_debug_mode,
                torch.set_deterministic_debug_mode,
            ),
        }
        settings |= {
            f"autocast of {device}": (
                partial(torch.is_autocast_enabled, device),
                partial(torch.set_autocast_enabled, device),
            )
            for device in ("cpu", "cuda")
        }
        settings["precision of float32 products"] = _get_precision, _set_precision
    return settings


def _get_folder() -> Path | None:
    with suppress(FileNotFoundError):
        return Path.cwd()
    return None  # code changed to a temporary folder, which is gone


def _get_precision() -> tuple[str, str, str | None]:
    """Precision of CUDA, of mkldnn, and of both in the older API; None: torch reports a mix.

    `set_float32_matmul_precision` and `allow_tf32` change both, and where they differ afterwards
    torch refuses every product on a GPU.
    """
    import torch

    name, backends = None, torch.backends
    with suppress(RuntimeError):
        name = torch.get_float32_matmul_precision()
    return backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision, name


def _set_precision(precision: tuple[Any, Any, str | None]) -> None:
    import torch

    cuda, mkldnn, name = precision
    if name is not None:
        torch.set_float32_matmul_precision(name)  # sets the other two as well
    torch.backends.cuda.matmul.fp32_precision = cuda
    torch.backends.mkldnn.matmul.fp32_precision = mkldnn  # pyright: ignore[reportAttributeAccessIssue]


def describe_error(error: BaseException) -> str:
    """Type and message of an error in the user's code, and the file and line that raised it.

    The line is that of the last call in a file of the user's, which says more than a library's;
    without one, of the last call in a library. An error of this package has no line, and a
    ValueError of it no type.
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
