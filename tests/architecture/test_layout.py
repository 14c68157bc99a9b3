"""Small files with telling names."""

import ast
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("stages", "flows") for path in (REPOSITORY / folder).rglob("*.py")
)
ENTRY_POINTS = sorted(
    path
    for path in (REPOSITORY / "stages").glob("[!_]*.py")
    if "\ndef main(" in path.read_text(encoding="utf-8")
)
FORBIDDEN_NAMES = {
    "utils", "util", "common", "base", "helpers", "helper", "misc", "core", "tools", "lib",
}  # fmt: skip


def name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def test_there_are_entry_points() -> None:
    assert len(ENTRY_POINTS) >= 12


def test_packages_are_empty_files() -> None:
    full = [name(path) for path in SOURCES if path.name == "__init__.py" and path.stat().st_size]
    assert full == ["flows/__init__.py", "stages/__init__.py"]  # each says why


def test_every_folder_of_sources_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert [name(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_no_file_is_a_drawer_for_everything() -> None:
    assert [name(path) for path in SOURCES if FORBIDDEN_NAMES & set(path.stem.split("_"))] == []
    folders = {parent for path in SOURCES for parent in path.parents if parent != REPOSITORY}
    inside = [folder for folder in folders if REPOSITORY in folder.parents]
    assert [name(folder) for folder in inside if folder.name in FORBIDDEN_NAMES] == []


def test_every_file_says_what_it_is_for() -> None:
    silent = [
        name(path)
        for path in SOURCES
        if path.name != "__init__.py"
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_tests_mirror_the_folders_of_the_sources() -> None:
    # tests/stages/a/ tests stages/a
    for part in ("stages", "flows"):
        for test in (REPOSITORY / "tests" / part).rglob("test_*.py"):
            tested = REPOSITORY / test.relative_to(REPOSITORY / "tests").parent
            assert tested.is_dir(), name(test)


def test_every_array_annotation_is_checked_while_the_tests_run() -> None:
    config = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    options = config["tool"]["pytest"]["ini_options"]["addopts"]
    (option,) = [text for text in options if text.startswith("--jaxtyping-packages=")]
    packages = option.partition("=")[2].split(",")[:-1]
    annotated = [path for path in SOURCES if "jaxtyping" in path.read_text(encoding="utf-8")]
    modules = [name(path).removesuffix(".py").replace("/", ".") for path in annotated]
    assert len(modules) > 40
    prefixes = tuple(f"{package}." for package in packages)
    assert [module for module in modules if not f"{module}.".startswith(prefixes)] == []
