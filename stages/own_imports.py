"""Imports of the user's files from outside of this package.

Imports are followed to every module whose file is neither the interpreter's nor an installed
package's: beside README.md, in `src/`, in an editable install. An installed package counts by its
version, which every stage checks or else its file METADATA has. Source is parsed, not executed:
an import inside a function counts, one under `if TYPE_CHECKING:` does not, and a call of
`importlib.import_module` is not seen (`opened_files` refuses it).
"""

import ast
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

from stages.code_origin import OWN, PACKAGE, is_installed, is_of_library
from stages.runtime.versions import normalize

LINKS, LINK = f"{PACKAGE.name}/.own_links/", ".link"
"""Folder and suffix of links to such files, through which DVC notices edits."""
METADATA = "METADATA"
"""File of an installed package with its name and version."""


def follow_imports(
    files: Iterable[str],
    root: Path,
    list_files: Callable[[str], Collection[str]],
    pins: Collection[str],
) -> dict[str, Path]:
    """Files outside of this package that the files of `own/` import: name -> file.

    The name is the path of a file in the checkout, else that of a link to it.

    Args:
        files: relative to `root`, with all that they import from this package.
        root: the checkout.
        list_files: files that importing a module of this package reads, relative to `root`.
        pins: names of the packages with a pinned version that every stage checks.
    """
    needed: dict[str, Path] = {}
    pending = [(root / file, "") for file in files if f"/{OWN}/" in file]
    while pending:
        path, importing = pending.pop()
        for module in sorted(list_imports(path, importing)):
            if not f"{module}.".startswith(f"{PACKAGE.name}."):
                new = {
                    name_file(file, name, root): (file, name_of)
                    for name, file, name_of in locate(module, pins)
                }
            else:  # imports within this package are in `files`
                new = {
                    file: (root / file, "") for file in (list_files(module) if importing else ())
                }
            for name, (file, name_of) in new.items():
                if name not in needed and file.suffix == ".py" and (name_of or f"/{OWN}/" in name):
                    pending.append((file, name_of))
                needed[name] = file
    return needed


def name_file(path: Path, name: str, root: Path) -> str:
    """Path of a file in the checkout; else that of a link to it, the same on every machine."""
    folder, path = root.absolute(), Path(os.path.abspath(path))  # noqa: PTH100 - links stay
    if path.is_relative_to(folder) and not is_of_library(path):
        return path.relative_to(folder).as_posix()
    return f"{LINKS}{name}{LINK}"


def list_imports(path: Path, module: str) -> set[str]:
    """Dotted names that a file may import; for `from a import b` both a and a.b.

    `module`: the file's module name, for relative imports.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    parents, names = package.split("."), set[str]()
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: expected Python, found {error.msg}: correct it"
        ) from error
    for node in _walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return {
        name for name in names if name and not name.startswith(".")
    }  # relative imports above the top fail


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that may run."""
    yield node
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        children = iter(node.orelse)
    for child in children:
        yield from _walk(child)


def locate(module: str, pins: Collection[str]) -> Iterator[tuple[str, Path, str]]:
    """Name, file and module of each file that importing a module reads, except pinned packages.

    The name is the path below an entry of `sys.path`; the module is empty for METADATA.
    """
    words, folders = module.split("."), None
    for length in range(1, len(words) + 1):
        spec = find_spec(".".join(words[:length]), folders)
        if spec is None:  # not installed, or a name that a module defines
            return
        path = Path(spec.origin or "") if spec.has_location else None
        if path is not None and is_of_library(path):
            packages = list_packages().get(words[0], []) if is_installed(path) else None
            for package in packages or ():
                if normalize(package) not in pins:
                    yield *describe_package(package), ""
            if packages != []:
                return
        if path is not None:
            end = f"/{path.name}" if spec.submodule_search_locations else path.suffix
            yield f"{spec.name.replace('.', '/')}{end}", path, spec.name
        if spec.submodule_search_locations is None:
            return
        folders = list(spec.submodule_search_locations)


def find_spec(module: str, folders: list[str] | None) -> ModuleSpec | None:
    """Spec of a module; unlike `importlib.util.find_spec`, imports no parent package."""
    specs = (finder.find_spec(module, folders) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


@cache
def list_packages() -> dict[str, list[str]]:
    """Installed packages by import name."""
    return dict(metadata.packages_distributions())


def describe_package(name: str) -> tuple[str, Path]:
    """Name and version of an installed package, and the file that has both."""
    package = metadata.distribution(name)
    files = [file for file in package.files or () if file.name in (METADATA, "PKG-INFO")]
    return f"{normalize(name)} {package.version}/{METADATA}", Path(str(files[0].locate()))
