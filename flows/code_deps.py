"""Keep the code dependencies in dvc.yaml equal to what each entry point imports.

    python -m flows.code_deps sync          write them into dvc.yaml
    python -m flows.code_deps check         exit 1 and show the difference
    python -m flows.code_deps reach FILE    which stages an edit of FILE reruns

Only the lines of `deps:` that name a file under stages/, or constraints.txt, are written, and
those that flows.gather writes. A source file that an entry's word names is written by hand.
"""

import argparse
import difflib
import re
import sys
from pathlib import Path

import grimp

from flows import closure, dep_lines, gather
from flows.dep_lines import CONSTRAINTS, DVC_YAML
from flows.graph import downstream, read_graph

ENTRY_POINT = re.compile(r"python3? -m (stages(?:\.\w+)+)")


def main() -> int:
    """Run the command line; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m flows.code_deps", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("sync", help="write the code dependencies into dvc.yaml")
    actions.add_parser("check", help="exit 1 if dvc.yaml differs from what is imported")
    actions.add_parser("reach", help="which stages an edit of a file reruns").add_argument("file")
    arguments = parser.parse_args()
    root = Path.cwd()
    try:
        if arguments.action == "reach":
            print(describe_reach(root, arguments.file))
            return 0
        path = root / DVC_YAML
        declared = path.read_text(encoding="utf-8")
        exact = synchronised(declared, root)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if declared == exact:
        print(f"{DVC_YAML}: the dependencies are what the entry points import and the plan makes")
        return 0
    lines = (
        declared.splitlines(),
        exact.splitlines(),
        f"{DVC_YAML} (declared)",
        "imported and gathered",
    )
    print("\n".join(difflib.unified_diff(*lines, lineterm="", n=1)))
    if arguments.action == "check":
        print("Run `python -m flows.code_deps sync` to write them.", file=sys.stderr)
        return 1
    path.write_text(exact, encoding="utf-8")
    return 0


def synchronised(text: str, root: Path) -> str:
    """The text of dvc.yaml with every stage's code and gathered dependencies made exact.

    Raises:
        ValueError: if a stage runs a module that is missing, or has no `deps:` list to fill.
    """
    graph = closure.import_graph(root)
    lines = text.splitlines(keepends=True)
    # From the last stage to the first, so that line numbers above an edit stay valid.
    for name, body in reversed(list(dep_lines.stage_bodies(text).items())):
        match = ENTRY_POINT.search(" ".join(str(body.get("cmd", "")).split()))
        if match is None:
            continue
        wanted = {CONSTRAINTS, *closure.import_closure(graph, match.group(1), root)}
        for dep in body.get("deps") or []:
            if dep_lines.named_by_entry(dep):
                check_named(graph, root, name, str(dep), wanted)
        dep_lines.write_code(lines, name, body, wanted)
    return gather.synchronised("".join(lines), root)


def check_named(
    graph: grimp.ImportGraph, root: Path, stage: str, dep: str, watched: set[str]
) -> None:
    """Every file that an entry's word may name imports only what its stage watches anyway.

    Raises:
        ValueError: an edit of something that such a file imports would rerun nothing.
    """
    for file in sorted(root.glob(re.sub(r"\$\{[^}]*\}", "*", dep))):
        path = file.relative_to(root).as_posix()
        if file.name == "__init__.py":
            continue
        module = path.removesuffix(".py").replace("/", ".")
        unwatched = set(closure.import_closure(graph, module, root)) - watched - {path}
        if unwatched:
            raise ValueError(
                f"{path} imports {', '.join(sorted(unwatched))}, which the stage {stage} does not: "
                f"an edit there would not rerun it. Copy what is needed into {path}."
            )


def describe_reach(root: Path, file: str) -> str:
    """Text that names the stages an edit of `file` reruns, and why."""
    path = Path(file).resolve().relative_to(root.resolve()).as_posix()
    graph = read_graph(root)
    direct = {
        node.name
        for node in graph.values()
        if any(path == dep or path.startswith(dep + "/") for dep in node.deps)
    }
    later = downstream(graph, direct)
    module = path.removesuffix(".py").replace("/", ".")
    if not direct and closure.exempt(module):
        return f"{path}: no stage; it is declared unable to change an output"
    if path == "params.yaml":
        keys = sorted({key for node in graph.values() for key in node.params})
        readers = {key: [n.name for n in graph.values() if key in n.params] for key in keys}
        return "\n".join(f"{key}: {' '.join(names)}" for key, names in readers.items())
    if not direct:
        return f"{path}: no stage depends on it"
    return "\n".join(
        [f"{path}: {len(direct)} directly, {len(later)} downstream if their inputs change"]
        + [f"  {name}" for name in graph if name in direct]
        + [f"  {name} (downstream)" for name in graph if name in later]
    )


if __name__ == "__main__":
    sys.exit(main())
