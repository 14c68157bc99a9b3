"""Edit the `deps:` lists of dvc.yaml in place.

All other text, comments included, stays as it is byte for byte, which a YAML round trip would
not promise.
"""

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

DVC_YAML = "dvc.yaml"
CONSTRAINTS = "constraints.txt"
CODE = ("stages/", CONSTRAINTS)


def stage_bodies(text: str) -> dict[str, CommentedMap]:
    """For each stage of dvc.yaml the mapping that holds `cmd` and `deps`."""
    content = YAML(typ="rt").load(text) or {}
    stages = content.get("stages") or {}
    return {name: stage.get("do", stage) for name, stage in stages.items()}


def is_code(dep: object) -> bool:
    """Whether a dependency is written from what the entry point imports.

    A file that an entry's word names (`stages/rewards/own/${item.own}.py`) is imported by its name
    at run time: it is written by hand, and kept.
    """
    return isinstance(dep, str) and dep.startswith(CODE) and not named_by_entry(dep)


def named_by_entry(dep: object) -> bool:
    """Whether a dependency is a source file whose name is a word of the entry."""
    return isinstance(dep, str) and dep.startswith("stages/") and "${" in dep


def write_code(lines: list[str], name: str, body: CommentedMap, wanted: set[str]) -> None:
    """Remove from `lines` the code dependencies not wanted and add the missing ones, sorted.

    Args:
        lines: of dvc.yaml; changed in place.
        name: of the stage.
        body: of the stage, as `stage_bodies` of the same lines gives it.
        wanted: all of its code dependencies.

    Raises:
        ValueError: the stage has no `deps:` list to fill.
    """
    header, listed = deps_of(name, body)
    rows: list[tuple[int, str]] = []  # (line number, path) of the code dependencies that stay
    seen: set[str] = set()
    unwanted: list[int] = []
    indent = " " * (body.lc.key("deps")[1] + 2)
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


def write_gathered(lines: list[str], name: str, body: CommentedMap, wanted: set[str]) -> None:
    """Replace in `lines` all dependencies that are not code by `wanted`, sorted, below the code.

    So that the same plan always gives the same text. Arguments as of `write_code`.
    """
    header, listed = deps_of(name, body)
    places = [(listed.lc.item(index)[0], dep) for index, dep in enumerate(listed)]
    last = max((line for line, dep in places if is_code(dep)), default=header)
    indent = " " * (listed.lc.item(0)[1] - 2 if places else body.lc.key("deps")[1] + 2)
    others = {line for line, dep in places if not is_code(dep)}
    kept = [line for number, line in enumerate(lines) if number not in others]
    below = last + 1 - sum(line < last for line in others)
    kept[below:below] = [f"{indent}- {dep}\n" for dep in sorted(wanted)]
    lines[:] = kept


def deps_of(name: str, body: CommentedMap) -> tuple[int, CommentedSeq]:
    """The line of a stage's `deps:` and the list below it.

    Raises:
        ValueError: there is none, or not one item a line.
    """
    deps = body.get("deps")
    block = isinstance(deps, CommentedSeq) and not deps.fa.flow_style()
    if "deps" not in body or not (deps is None or block):
        raise ValueError(
            f"{DVC_YAML}: stage '{name}' has no `deps:` written as one item a line. "
            f"Add a line `deps:` under its cmd and run sync again."
        )
    return body.lc.key("deps")[0], deps if isinstance(deps, CommentedSeq) else CommentedSeq()


def order(dep: str) -> tuple[bool, str]:
    """Entry points and other files by path; constraints.txt after them."""
    return (dep == CONSTRAINTS, dep)
