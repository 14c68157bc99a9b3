"""Command line of the stages of dvc.yaml that work on a row of params.yaml, or on all rows.

    python -m stages train_grpo grpo --train grpo --preset grpo_deepseekmath --from sft --on ..
    python -m stages compare

The first word is an entry point, a key of `rows.ENTRY_POINTS` or one of `OF_ALL_ROWS`; the words of
the row follow.

    python -m stages --serve <process id of a dvc or a flow>

starts a fork server for the stages of that process (`runtime/fork_server`).
"""

import importlib
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from stages.runtime import fork_server, process

OF_ALL_ROWS = ("compare", "track")
"""Entry points without a row, which run no model and do not depend on `compute`."""
SERVE = "--serve"
IMPORTED_LATE = ("report.comparison", "report.page", "report.plots", "tracking.view")
"""Modules that compare and track import late, with scipy, matplotlib and MLflow."""


def find_main(words: Sequence[str]) -> partial[None]:
    """`main` of the first word's module, with its words as arguments."""
    # A late import: a process whose fork does the work does not need it.
    from stages.params import adopt_rounding
    from stages.rows import ENTRY_POINTS

    modules = {**ENTRY_POINTS, **{name: name for name in OF_ALL_ROWS}}
    words = [*(word.partition("/")[0] for word in words[:1]), *words[1:]]  # `label_own/mine`
    if not words or words[0] not in modules:
        sys.exit(
            f"expected an entry point, found {words[0] if words else 'none'}: name one of "
            f"{', '.join(modules)}"
        )
    if words[0] not in OF_ALL_ROWS:
        adopt_rounding()
    # A module with several entry points needs the first word.
    return partial(load(modules[words[0]]).main, *words[words[0] in OF_ALL_ROWS :])


def import_all() -> None:
    """Import every entry point."""
    load("plan_checks").load_entry_points()


def import_more() -> None:
    """Import the modules of `IMPORTED_LATE`."""
    load("track").set_environment()
    for name in IMPORTED_LATE:
        load(name)


def load(name: str) -> Any:
    """A module of this package."""
    return importlib.import_module(f"stages.{name}")


if __name__ == "__main__":
    with process.ending():
        words = sys.argv[1:]
        if words[:1] == [SERVE]:
            load("params").adopt_rounding()
            words = fork_server.serve(int(words[1]), import_all, import_more)
        elif words:
            fork_server.work_in_fork(imports_much=words[0] not in OF_ALL_ROWS)
        find_main(words)()
