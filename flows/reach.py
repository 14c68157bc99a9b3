"""List the stages that an edit of a file would rerun.

python -m flows.reach stages/algorithms/kl.py
python -m flows.reach params.yaml               every key, and the stages that depend on it
"""

import json
from pathlib import Path

from flows.command_line import make_parser, run
from flows.plan import downstream, read_graph, run_dvc

PARAMETERS = ("params.yaml", "stages/presets.yaml")
TRACES = ("data/code", "data/own", "data/inputs.json", "data/raw.json")
"""Outputs of trace_code (the source files that each entry point reads) and of plan (the files of
the data, and those that environments look up)."""
LOOKED_AT = ("data/raw", "stages/algorithms/own")
"""Folders of the user's files: an edit of any reruns plan, whose outputs seldom change."""


def main() -> None:
    """Run the command line."""
    parser = make_parser("flows.reach", __doc__)
    parser.add_argument("file", help="of this repository")
    print(describe(Path.cwd(), parser.parse_args().file))


def describe(root: Path, file: str) -> str:
    """Text with the stages that an edit of `file` reruns: those that read it, and downstream ones.

    Raises:
        ValueError: the file does not exist, is a folder of which stages read single files, or DVC
            cannot run trace_code.
    """
    root = root.resolve()
    absolute = (root / file).resolve()
    if not absolute.exists() or not absolute.is_relative_to(root):
        raise ValueError(f"there is no {file} in {root}: name a file of this repository")
    path = absolute.relative_to(root).as_posix()
    graph = read_graph(root)
    if path in PARAMETERS:
        keys = sorted({key for node in graph.values() for key in node.params})
        names = {key: [n.name for n in graph.values() if key in n.params] for key in keys}
        return "\n".join(f"{key}: {' '.join(users)}" for key, users in names.items())
    if "trace_code" in graph:
        run_dvc(root, "repro", "-q", "-s", "trace_code")
    # A stage depends on a file, or on a folder that contains it.
    dependencies = {
        parent.as_posix()
        for source in (path, *list_traces(root, path))
        for parent in (Path(source), *Path(source).parents)
    }
    direct = {name for name, node in graph.items() if dependencies.intersection(node.deps)}
    is_looked_at = any(Path(path).is_relative_to(folder) for folder in LOOKED_AT)
    direct -= {"trace_code", "plan"} if is_looked_at else {"trace_code"}
    if not direct and absolute.is_dir():
        raise ValueError(f"{file} is a folder, of which stages read single files: name one of them")
    if not direct:
        return f"{path}: no stage's result depends on it"
    later = downstream(graph, direct)
    return "\n".join(
        [f"{path}: {len(direct)} directly, {len(later)} downstream if their inputs change"]
        + [f"  {name}" for name in graph if name in direct]
        + [f"  {name} (downstream)" for name in graph if name in later]
    )


def list_traces(root: Path, file: str) -> list[str]:
    """Files of `TRACES`, relative to `root`, of the stages that read `file`."""
    places = [root / name for name in TRACES]
    traces = [path for place in places for path in (place, *place.rglob("*")) if path.is_file()]
    return [
        path.relative_to(root).as_posix()
        for path in traces
        if file in json.loads(path.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    run(main)
