"""Keep what stages gather, and what they write beside others' outputs, equal to the plan.

    python -m flows.gather          write them into dvc.yaml; needed after a change of `plan`
    python -m flows.gather check    exit 1 and say what to do where they differ

A stage says `meta: {gathers: [data/evaluate_policy/*/metrics.json]}`; each pattern stands for the
outputs of other stages that it matches, part by part (`*` stands for no `/`). What `beside` there
stands for: flows/beside.py. dvc.yaml itself has no way to say that: a template cannot be a list.
"""

import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dvc.exceptions import DvcException

from flows import beside, dep_lines
from flows.dep_lines import DVC_YAML
from flows.graph import StageNode, read_graph


def main() -> int:
    """Run the command line; the result is the exit status."""
    root, path = Path.cwd(), Path(DVC_YAML)
    declared = path.read_text(encoding="utf-8")
    try:
        exact = synchronised(declared, root)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if declared == exact:
        return 0
    if sys.argv[1:] == ["check"]:
        print(
            f"{DVC_YAML} lists what another plan makes: run `python -m flows.gather`, then "
            f"`dvc repro` again.",
            file=sys.stderr,
        )
        return 1
    path.write_text(exact, encoding="utf-8")
    return 0


def synchronised(text: str, root: Path) -> str:
    """The text of dvc.yaml with what stages gather, and write beside others' outputs, made exact.

    What is written beside others' outputs is itself never gathered.

    Raises:
        ValueError: such a stage has no list to fill, or DVC cannot read the plan.
    """
    metas = [body.get("meta") or {} for body in dep_lines.stage_bodies(text).values()]
    if not any("gathers" in meta or "beside" in meta for meta in metas):
        return text
    try:
        graph = read_graph(root)
    except DvcException as error:
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        raise ValueError(f"dvc cannot read the pipeline: {error}{cause}") from error
    text = beside.written(text, root)
    lines = text.splitlines(keepends=True)
    # From the last stage to the first, so that line numbers above an edit stay valid.
    for name, body in reversed(list(dep_lines.stage_bodies(text).items())):
        if wanted := patterns(body):
            dep_lines.write_gathered(lines, name, body, expand(wanted, graph, name))
    return "".join(lines)


def patterns(body: Mapping[str, Any]) -> list[str]:
    """What a stage of dvc.yaml gathers."""
    return list((body.get("meta") or {}).get("gathers", []))


def expand(wanted: list[str], graph: Mapping[str, StageNode], name: str) -> set[str]:
    """The outputs of other stages than `name` that a pattern matches."""
    outs = [out for node in graph.values() if node.name != name for out in node.outs]
    return {out for out in outs for pattern in wanted if matches(out, pattern)}


def matches(path: str, pattern: str) -> bool:
    """Whether the pattern is of the path, part by part."""
    parts, expected = path.split("/"), pattern.split("/")
    return len(parts) == len(expected) and all(map(fnmatchcase, parts, expected))


if __name__ == "__main__":
    sys.exit(main())
