"""Tell which stages an edit of a file would rerun.

python -m flows.reach stages/algorithms/kl.py
python -m flows.reach params.yaml               every key, and who reads it
"""

import json
import sys
from pathlib import Path

from flows.plan import downstream, read_graph, refresh

PARAMETERS = ("params.yaml", "stages/presets.yaml")
TRACED = (Path("data/code"), Path("data/own"))
"""Where trace_code writes which source files an entry point reads."""


def main() -> int:
    """Run the command line; the result is the exit status."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(describe(Path.cwd(), sys.argv[1]))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def describe(root: Path, file: str) -> str:
    """Text that names the stages an edit of `file` reruns, and why.

    Raises:
        ValueError: there is no such file, or DVC cannot run trace_code.
    """
    found = (root / file).resolve()
    if not found.exists() or not found.is_relative_to(root.resolve()):
        raise ValueError(f"there is no {file} in {root}")
    path = found.relative_to(root.resolve()).as_posix()
    graph = read_graph(root)
    if path in PARAMETERS:
        keys = sorted({key for node in graph.values() for key in node.params})
        users = {key: [n.name for n in graph.values() if key in n.params] for key in keys}
        return "\n".join(f"{key}: {' '.join(names)}" for key, names in users.items())
    if "trace_code" in graph:
        refresh(root, ["trace_code"])
    read = {path, *readers(root, path)}
    direct = {
        node.name
        for node in graph.values()
        if node.name != "trace_code" and any(covers(dep, one) for dep in node.deps for one in read)
    }
    if not direct:
        return f"{path}: no stage's result depends on it"
    later = downstream(graph, direct)
    return "\n".join(
        [f"{path}: {len(direct)} directly, {len(later)} downstream if their inputs change"]
        + [f"  {name}" for name in graph if name in direct]
        + [f"  {name} (downstream)" for name in graph if name in later]
    )


def readers(root: Path, file: str) -> list[str]:
    """The traced files, relative to `root`, of every entry point that reads `file`."""
    traced = (path for folder in TRACED for path in (root / folder).rglob("*") if path.is_file())
    return sorted(
        path.relative_to(root).as_posix()
        for path in traced
        if file in json.loads(path.read_text(encoding="utf-8"))
    )


def covers(dependency: str, path: str) -> bool:
    """Whether the dependency is the file, or a folder that it lies in."""
    return path == dependency or path.startswith(dependency + "/")


if __name__ == "__main__":
    sys.exit(main())
