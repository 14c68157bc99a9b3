"""Origin of a source file: this package, a library, or else the user."""

import sysconfig
from pathlib import Path

PACKAGE, OWN = Path(__file__).parent, "own"
"""Folder of this package, and name of its subfolders with the user's files."""
STANDARD_LIBRARY, INSTALLED = Path(sysconfig.get_path("stdlib")), {"site-packages", "dist-packages"}


def is_ours(path: Path) -> bool:
    """Whether a file is this package's, or the interpreter's (`<frozen ..>`)."""
    is_inside = path.is_relative_to(PACKAGE) and OWN not in path.relative_to(PACKAGE).parts
    return is_inside or str(path).startswith("<frozen")


def is_of_library(path: Path) -> bool:
    """Whether a file is of an installed package, or is none (`<string>`, code of a dataclass)."""
    is_standard = path.is_relative_to(STANDARD_LIBRARY)
    return is_installed(path) or is_standard or str(path).startswith("<")


def is_installed(path: Path) -> bool:
    """Whether a file lies where packages are installed."""
    return not INSTALLED.isdisjoint(path.parts)
