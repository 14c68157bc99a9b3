"""Which of our files Python imports for an entry point, those inside of functions included.

    python imported.py stages.train_dpo stages.sample ...     in the repository; prints JSON

Nothing here asks trace_code or grimp, its parser of imports: Python's own `modulefinder` reads the
import instructions of the compiled code, with the packages around each module.
"""

import ast
import io
import json
import sys
from functools import cache
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

PACKAGES = ("stages", "studies")


class WithoutTypeChecking(ast.NodeTransformer):
    """What stands below `if TYPE_CHECKING:` never runs."""

    def visit_If(self, node: ast.If) -> Any:
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return node.orelse or ast.Pass() if is_for_types else self.generic_visit(node)


class OurFiles(ModuleFinder):
    """Follows imports within our packages."""

    def import_module(self, partname: str, fqname: str, parent: Any) -> Any:
        if fqname.partition(".")[0] not in PACKAGES:
            return None
        return super().import_module(partname, fqname, parent)

    def load_module(self, fqname: str, fp: Any, pathname: str, file_info: Any) -> Any:
        if fp is not None:
            fp = io.StringIO(without_type_checking(pathname))
        return super().load_module(fqname, fp, pathname, file_info)


@cache
def without_type_checking(path: str) -> str:
    """A file's text, parsed once for all entries that import it."""
    tree = WithoutTypeChecking().visit(ast.parse(Path(path).read_text(encoding="utf-8")))
    return ast.unparse(ast.fix_missing_locations(tree))


def list_files(entry: str) -> list[str]:
    """What it reads, relative to the repository."""
    finder = OurFiles(path=[str(Path.cwd())])
    finder.import_hook(entry)
    paths = {Path(module.__file__) for module in finder.modules.values() if module.__file__}
    return sorted(path.relative_to(Path.cwd()).as_posix() for path in paths)


if __name__ == "__main__":
    print(json.dumps({entry: list_files(entry) for entry in sys.argv[1:]}))
