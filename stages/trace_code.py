"""Import closure of each entry point, with the digests of its files.

    python -m stages.trace_code

Every other stage depends on one file `code/<entry point>.json`: the import closure of the module
that it runs (found by grimp, Seddon, https://grimp.readthedocs.io) and constraints.txt, each with
its SHA-256. So an edit reruns this stage, which takes a second, and then only the stages whose code
it changed; imports are declared nowhere. Each user's file `own/<file>` (`own_modules`) has a file
of digests under that name; a reward and an environment of the same name share it. It also lists the
files that the user's file imports from outside of `stages` (`own_imports`), and those under the key
`files` of its rows. DVC reads each of these through a link in `stages/.own_links/`, so that an edit
changes a folder that this stage depends on. `code/presets/<preset>.json` has the user's files that
a preset names: mostly none. The source that `data.source` names is code of prepare_data; a labeller
has a file `code/label_own/<file>.json`.

grimp parses the files, so imports inside functions count and a package that is not installed does
no harm. Imports under `if TYPE_CHECKING:` do not count: they never run.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import grimp
from grimp.exceptions import SourceSyntaxError

from stages import own_imports, own_modules
from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml
from stages.rows import ENTRY_POINTS
from stages.runtime import outputs, process, versions

ROOT = Path()
DATA = Path("data")
PACKAGE = "stages"
OWN_PACKAGES = tuple(f"stages.{folder}.own" for folder in own_modules.FOLDERS)
"""Packages of the user's files, which a row, a preset or the source names."""
EXEMPT = ("stages.runtime.", "stages.plan.", "stages.trace_code.", "stages.__main__.")
"""Modules that can change no output except the form of journals: records and progress; the stages
that check rows, parameters and code, on which every stage depends anyway; the lookup of the module
to run."""
PRESETS = "presets"
"""Folder below `code/`."""
CONSTRAINTS = "constraints.txt"
"""Versions of all packages."""
RECIPES = "stages/recipes"
OWN_TABLES = ("rewards", "environments", "pairs")
"""Tables with rows that name the user's files."""


def main() -> None:
    """Write `code/` and `own/`, and links to the files in `own/` from outside of `stages`."""
    process.die_with_dvc("trace_code")
    graph, linked = build_import_graph(ROOT, PACKAGE), dict[str, Path]()
    with outputs.replace(DATA / "code") as code, outputs.replace(DATA / "own") as own:
        (code / PRESETS).mkdir(parents=True)
        own.mkdir()
        digests_by_module = dict[str, dict[str, str]]()
        for entry in list_entries(ROOT):
            names = [*list_import_closure(graph, entry, ROOT), CONSTRAINTS]
            files = {name: ROOT / name for name in names}
            package, _, module = entry.rpartition(".")
            words = [word for word, runs in ENTRY_POINTS.items() if runs == module] or [module]
            paths = [code / f"{word}.json" for word in words]
            if package in OWN_PACKAGES:
                paths = [own / module]
                others = find_outside(graph, files, module)
                linked |= others
                files |= others
            digests_by_module[entry] = digest_files(files)
            for path in paths:
                add_digests(path, digests_by_module[entry])
        for row in list_own_rows():
            if word := own_modules.get_own_word(row.get("by")):  # a labeller
                modules, path = (
                    ("stages.label_own", f"stages.rewards.own.{word}"),
                    f"label_own/{word}",
                )
            elif word := own_modules.get_own_word(row.get("kind")):  # the source
                modules, path = (f"stages.sources.own.{word}",), "prepare_data"
            else:
                continue
            for module in modules:
                add_digests(code / f"{path}.json", digests_by_module.get(module, {}))
        for preset, modules in list_own_modules_of_presets().items():
            path = code / PRESETS / f"{preset}.json"
            add_digests(path, {})
            for module in modules:  # `plan` refuses one that does not exist
                add_digests(path, digests_by_module.get(module, {}))
    write_links(linked)


def add_digests(path: Path, digests: Mapping[str, str]) -> None:
    """Add digests to a file of digests."""
    path.parent.mkdir(exist_ok=True)
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**before, **digests}, indent=0) + "\n", encoding="utf-8")


def list_own_modules_of_presets() -> dict[str, list[str]]:
    """Preset -> the modules in `algorithms/own/` that values of its keys name."""
    path = ROOT / PRESETS_PATH
    presets = read_yaml(path) if path.is_file() else {}
    return {
        str(name): [
            f"stages.algorithms.own.{word}"
            for value in (entry.values() if isinstance(entry, dict) else ())
            if (word := own_modules.get_own_word(value)) is not None
        ]
        for name, entry in presets.items()
    }


def find_outside(graph: grimp.ImportGraph, files: Collection[str], word: str) -> dict[str, Path]:
    """Name -> file that a user's file needs besides `files`, which its import reads.

    The packages whose pinned versions every stage checks (`versions.PACKAGES`) are left out.
    """

    def list_files(module: str) -> list[str]:
        return list_import_closure(graph, module, ROOT) if module in graph.modules else []

    constraints = (ROOT / CONSTRAINTS).read_text(encoding="utf-8")
    pins = versions.read_pins(constraints).keys() & {*versions.PACKAGES}
    needed = own_imports.follow_imports(files, ROOT, list_files, pins)
    for file in list_row_files(word):
        path = ROOT / Path(file).expanduser()
        if path.is_file():  # else `plan` reports the error in the row
            parts = [part for part in Path(file).parts if part not in ("/", "..")]
            needed[own_imports.name_file(path, "/".join(parts), ROOT)] = path
    return dict(sorted(needed.items()))


def list_row_files(word: str) -> set[str]:
    """Files in the key `files` of all rows, and of the source, that name `own/<word>`."""
    rows = [row for row in list_own_rows() if f"own/{word}" in map(row.get, ("on", "by", "kind"))]
    return {str(file) for row in rows for file in row.get("files") or ()}


def list_own_rows() -> list[dict[str, Any]]:
    """Rows that may name the user's files, recipes included, and `data.source`."""
    paths = [ROOT / PARAMS_PATH, *sorted((ROOT / RECIPES).glob("*.yaml"))]
    contents = [read_yaml(path) for path in paths if path.is_file()]
    tables = [content.get(name) for content in contents for name in OWN_TABLES]
    rows = [row for table in tables if isinstance(table, dict) for row in table.values()]
    sections = [content.get("data") for content in contents]
    rows += [section.get("source") for section in sections if isinstance(section, dict)]
    return [row for row in rows if isinstance(row, dict)]


def digest_files(files: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of each file, by its name."""
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def write_links(targets: Mapping[str, Path]) -> None:
    """Make the folder of links: one to each file that is not a source in `stages`, no others."""
    folder = ROOT / own_imports.LINKS
    if folder.exists():
        shutil.rmtree(folder)
    for name, target in targets.items():
        if name.startswith(f"{PACKAGE}/") and name.endswith(".py"):
            continue
        inside = name.removeprefix(own_imports.LINKS).removesuffix(own_imports.LINK)
        link = folder / f"{inside}{own_imports.LINK}"
        link.parent.mkdir(parents=True, exist_ok=True)
        place = target.parent.resolve() / target.name
        if not name.startswith(own_imports.LINKS):  # in the checkout, which may be moved
            place = os.path.relpath(place, link.parent.resolve())
        link.symlink_to(place)


def build_import_graph(root: Path, *packages: str) -> grimp.ImportGraph:
    """The import graph of these packages in `root`."""
    folder = str(root.resolve())
    sys.path.insert(0, folder)  # grimp finds a package through sys.path
    try:
        return grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
    except SourceSyntaxError as error:  # of a file of the user's
        raise ValueError(
            f"{error.filename}, line {error.lineno}: expected Python, found {error.text!r}: "
            f"correct the line"
        ) from error
    finally:
        sys.path.remove(folder)


def list_entries(root: Path) -> list[str]:
    """Dotted names of the modules that commands and rows of stages name, sorted."""
    main = "\ndef main("
    modules = (root / PACKAGE).glob("[!_]*.py")
    paths = [path for path in modules if main in path.read_text(encoding="utf-8")]
    for package in OWN_PACKAGES:
        paths += root.joinpath(*package.split(".")).glob("[!_]*.py")
    names = (".".join(path.relative_to(root).with_suffix("").parts) for path in paths)
    return sorted(name for name in names if not is_exempt(name))


def list_import_closure(graph: grimp.ImportGraph, entry: str, root: Path) -> list[str]:
    """Files that the import of a module reads, sorted, relative to `root`.

    The templates of a module `page` are the files `page.*.j2` beside it, its texts `page.yaml`.
    """
    modules = {entry, *graph.find_upstream_modules(entry)}
    # Importing a.b.c runs a/__init__.py and a/b/__init__.py first.
    for module in tuple(modules):
        parts = module.split(".")
        modules.update(".".join(parts[:length]) for length in range(1, len(parts)))
    stems = [root / module.replace(".", "/") for module in modules if not is_exempt(module)]
    ends = (".py", ".yaml", "/__init__.py")
    files = [Path(f"{stem}{end}") for stem in stems for end in ends]
    files += [file for stem in stems for file in stem.parent.glob(f"{stem.name}.*.j2")]
    # A namespace package has no __init__.py, and most packages have an empty one.
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
