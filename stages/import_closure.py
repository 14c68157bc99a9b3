"""Which files of this package running a module reads, found in the source alone, and their digests.

Nothing is imported: grimp parses the files, so imports inside functions count and a package that is
not installed does no harm. Imports under `if TYPE_CHECKING:` do not count: they never run.
"""

import hashlib
import sys
from pathlib import Path

import grimp

PACKAGE = "stages"
STUDIES_PACKAGE = "stages.studies"
OWN_PACKAGE = "stages.rewards.own"
"""Files that a row names and Python imports by that name."""
EXEMPT_PACKAGE = "stages.runtime"
"""The declared exception: run records, checkpoints and progress cannot change an output."""
EXEMPT_MODULES = frozenset({"stages.plan", "stages.trace_code"})
"""Every stage's output is of the rows, parameters and code that these two look at, and of nothing
that they do."""
CONSTRAINTS = "constraints.txt"
"""The versions of everything that is not in this repository."""


def import_graph(root: Path) -> grimp.ImportGraph:
    """The import graph of `<root>/stages`."""
    folder = str(root.resolve())
    sys.path.insert(0, folder)  # grimp finds a package through sys.path
    try:
        return grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    finally:
        sys.path.remove(folder)


def entries(root: Path) -> list[str]:
    """Dotted names of what a stage's command or row names, sorted."""
    found = []
    for package in (PACKAGE, STUDIES_PACKAGE):
        for path in root.joinpath(*package.split(".")).glob("*.py"):
            text = path.read_text(encoding="utf-8")
            found += [f"{package}.{path.stem}"] if '\nif __name__ == "__main__":' in text else []
    own = root.joinpath(*OWN_PACKAGE.split(".")).glob("[!_]*.py")
    found += [f"{OWN_PACKAGE}.{path.stem}" for path in own]
    return sorted(entry for entry in found if not exempt(entry))


def import_closure(graph: grimp.ImportGraph, entry: str, root: Path) -> list[str]:
    """The files that importing `entry` reads, sorted, relative to `root`.

    Args:
        graph: what `import_graph(root)` returned.
        entry: dotted name of a module of the graph.
        root: the folder that holds `stages/`.
    """
    modules = {entry, *graph.find_upstream_modules(entry)}
    # Importing a.b.c runs a/__init__.py and a/b/__init__.py first.
    for module in tuple(modules):
        parts = module.split(".")
        modules.update(".".join(parts[:length]) for length in range(1, len(parts)))
    files = (source_file(module, root) for module in modules if not exempt(module))
    return sorted(
        file.relative_to(root).as_posix()
        for file in files
        if file is not None and not (file.name == "__init__.py" and file.stat().st_size == 0)
    )


def digests(files: list[str], root: Path) -> dict[str, str]:
    """The SHA-256 of each file's bytes, by its path relative to `root`."""
    return {file: hashlib.sha256((root / file).read_bytes()).hexdigest() for file in files}


def exempt(module: str) -> bool:
    """Whether the module is declared unable to change an output."""
    inside = module == EXEMPT_PACKAGE or module.startswith(EXEMPT_PACKAGE + ".")
    return inside or module in EXEMPT_MODULES


def source_file(module: str, root: Path) -> Path | None:
    """The module's file; None for a namespace package, which has none."""
    stem = root / module.replace(".", "/")
    for file in (stem.with_suffix(".py"), stem / "__init__.py"):
        if file.is_file():
            return file
    return None
