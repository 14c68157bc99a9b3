"""Keep the code dependencies in dvc.yaml equal to what each entry point imports.

    python -m flows.code_deps sync          write them into dvc.yaml
    python -m flows.code_deps check         exit 1 and show the difference
    python -m flows.code_deps reach FILE    which stages an edit of FILE reruns

Only the lines of `deps:` that name a file under stages/, or constraints.txt, are
written. All other text of dvc.yaml, comments included, stays as it is byte for byte,
which a YAML round trip would not promise.
"""

import argparse
import difflib
import re
import sys
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from flows import closure
from flows.graph import downstream, read_graph

DVC_YAML = "dvc.yaml"
CONSTRAINTS = "constraints.txt"
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
        print(f"{DVC_YAML}: the code dependencies are what the entry points import")
        return 0
    lines = (declared.splitlines(), exact.splitlines(), f"{DVC_YAML} (declared)", "imported")
    print("\n".join(difflib.unified_diff(*lines, lineterm="", n=1)))
    if arguments.action == "check":
        print("Run `python -m flows.code_deps sync` to write them.", file=sys.stderr)
        return 1
    path.write_text(exact, encoding="utf-8")
    return 0


def synchronised(text: str, root: Path) -> str:
    """The text of dvc.yaml with every stage's code dependencies made exact.

    Raises:
        ValueError: if a stage runs a module that is missing, or has no `deps:` list to fill.
    """
    graph = closure.import_graph(root)
    lines = text.splitlines(keepends=True)
    # From the last stage to the first, so that line numbers above an edit stay valid.
    for name, body in reversed(list(stage_bodies(text).items())):
        match = ENTRY_POINT.search(" ".join(str(body.get("cmd", "")).split()))
        if match is None:
            continue
        wanted = {CONSTRAINTS, *closure.import_closure(graph, match.group(1), root)}
        rewrite_deps(lines, name, body, wanted)
    return "".join(lines)


def stage_bodies(text: str) -> dict[str, CommentedMap]:
    """For each stage of dvc.yaml the mapping that holds `cmd` and `deps`."""
    content = YAML(typ="rt").load(text) or {}
    stages = content.get("stages") or {}
    return {name: stage.get("do", stage) for name, stage in stages.items()}


def is_code(dep: object) -> bool:
    """Whether this tool owns the dependency."""
    return isinstance(dep, str) and (dep == CONSTRAINTS or dep.startswith(closure.PACKAGE + "/"))


def rewrite_deps(lines: list[str], name: str, body: CommentedMap, wanted: set[str]) -> None:
    """Remove from `lines` the code dependencies not wanted and add the missing ones, sorted."""
    deps = body.get("deps")
    block = isinstance(deps, CommentedSeq) and not deps.fa.flow_style()
    if "deps" not in body or not (deps is None or block):
        raise ValueError(
            f"{DVC_YAML}: stage '{name}' has no `deps:` written as one item a line. "
            f"Add a line `deps:` under its cmd and run sync again."
        )
    header = body.lc.key("deps")[0]
    rows: list[tuple[int, str]] = []  # (line number, path) of the code dependencies that stay
    seen: set[str] = set()
    unwanted: list[int] = []
    indent = " " * (body.lc.key("deps")[1] + 2)
    listed = deps if isinstance(deps, CommentedSeq) else CommentedSeq()
    for index, dep in enumerate(listed):
        line = listed.lc.item(index)[0]
        indent = lines[line][: len(lines[line]) - len(lines[line].lstrip())]
        if not is_code(dep):
            continue
        if dep in wanted and dep not in seen:
            rows.append((line, dep))
            seen.add(dep)
        else:
            unwanted.append(line)
    edits: list[tuple[int, int, str]] = [(line, 0, "") for line in unwanted]
    for dep in wanted - seen:
        before = [line for line, other in rows if order(other) < order(dep)]
        edits.append((max(before, default=header), 1, dep))
    # Bottom up; at the same line the greatest path first, since each goes right below that line.
    edits.sort(key=lambda edit: (edit[0], edit[1], order(edit[2])))
    for line, insert, dep in reversed(edits):
        if insert:
            lines.insert(line + 1, f"{indent}- {dep}\n")
        else:
            del lines[line]


def order(dep: str) -> tuple[bool, str]:
    """Entry points and other files by path; constraints.txt after them."""
    return (dep == CONSTRAINTS, dep)


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
