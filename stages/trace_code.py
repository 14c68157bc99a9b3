"""Import closure of each entry point, with the digests of its files.

    python -m stages.trace_code

Every other stage depends on one file `code/<entry point>.json`: the import closure of the module
that it runs (found by grimp, Seddon, https://grimp.readthedocs.io) and constraints.txt, each with
its SHA-256. So an edit reruns this stage, which takes a second, and then the stages whose code it
changed, no others; imports are declared nowhere. An entry point in a subpackage has its file in a
subfolder, and the files of `rewards/own/` and `environments/own/`, which rows name as `own/<file>`,
have theirs under that name: a reward and an environment of one name share it.

grimp parses the files, so imports inside functions count and a package that is not installed does
no harm. Imports under `if TYPE_CHECKING:` do not count: they never run.
"""

import hashlib
import json
import sys
from pathlib import Path

import grimp

from stages.rows import ENTRY_POINTS
from stages.runtime import outputs, process

ROOT = Path()
DATA = Path("data")
PACKAGE = "stages"
OWN_PACKAGES = ("stages.rewards.own", "stages.environments.own")
"""Rewards and environments of the user, which a row names."""
EXEMPT = ("stages.runtime.", "stages.plan.", "stages.trace_code.", "stages.__main__.")
"""Modules that can change no output but the form of journals: records and progress, the stages that
look at rows, parameters and code, on which every stage depends by itself, and what looks up the
module to run."""
CONSTRAINTS = "constraints.txt"
"""Versions of all packages."""


def main() -> None:
    """Write `code/` and `own/`."""
    process.die_with_dvc("trace_code")
    graph = build_import_graph(ROOT)
    with outputs.replace(DATA / "code") as code, outputs.replace(DATA / "own") as own:
        code.mkdir()
        own.mkdir()
        for entry in list_entries(ROOT):
            files = [*list_import_closure(graph, entry, ROOT), CONSTRAINTS]
            digests = {
                file: hashlib.sha256((ROOT / file).read_bytes()).hexdigest() for file in files
            }
            name = entry.removeprefix(f"{PACKAGE}.")
            paths = [code / f"{word.replace('.', '/')}.json" for word in list_commands(name)]
            if entry.rpartition(".")[0] in OWN_PACKAGES:
                paths = [own / entry.rpartition(".")[2]]
            for path in paths:
                if path.exists():
                    digests |= json.loads(path.read_text(encoding="utf-8"))
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps(digests, indent=0) + "\n", encoding="utf-8")


def build_import_graph(root: Path) -> grimp.ImportGraph:
    """The import graph of `<root>/stages`."""
    folder = str(root.resolve())
    sys.path.insert(0, folder)  # grimp finds a package through sys.path
    try:
        return grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    finally:
        sys.path.remove(folder)


def list_entries(root: Path) -> list[str]:
    """Dotted names of the modules that commands and rows of stages name, sorted.

    Commands name modules of `stages` and of its subpackages that have a `__main__.py`.
    """
    packages = [root / PACKAGE, *(path.parent for path in (root / PACKAGE).glob("*/__main__.py"))]
    main = '\nif __name__ == "__main__":'
    paths = [
        *(path for own in OWN_PACKAGES for path in root.joinpath(*own.split(".")).glob("[!_]*.py")),
        *(
            path
            for package in packages
            for path in package.glob("[!_]*.py")
            if main in path.read_text(encoding="utf-8")
        ),
    ]
    modules = (".".join(path.relative_to(root).with_suffix("").parts) for path in paths)
    return sorted(module for module in modules if not is_exempt(module))


def list_commands(module: str) -> list[str]:
    """Entry points of rows that a module under stages/ runs; else the module's name."""
    return [name for name, runs in ENTRY_POINTS.items() if runs == module] or [module]


def list_import_closure(graph: grimp.ImportGraph, entry: str, root: Path) -> list[str]:
    """The files that importing a module of the graph reads, sorted, relative to `root`.

    The templates of a module `page` are the files `page.*.j2` beside it.
    """
    modules = {entry, *graph.find_upstream_modules(entry)}
    # Importing a.b.c runs a/__init__.py and a/b/__init__.py first.
    for module in tuple(modules):
        parts = module.split(".")
        modules.update(".".join(parts[:length]) for length in range(1, len(parts)))
    stems = [root / module.replace(".", "/") for module in modules if not is_exempt(module)]
    files = [file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py")]
    files += [file for stem in stems for file in stem.parent.glob(f"{stem.name}.*.j2")]
    # A namespace package has no file, and that of most packages is empty.
    return sorted(
        file.relative_to(root).as_posix()
        for file in files
        if file.is_file() and (file.name != "__init__.py" or file.stat().st_size)
    )


def is_exempt(module: str) -> bool:
    """Whether the module can change no output."""
    return f"{module}.".startswith(EXEMPT)


if __name__ == "__main__":
    process.run(main)
