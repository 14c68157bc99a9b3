"""Edit the `deps:` lists of dvc.yaml in place.

All other text, comments included, stays as it is byte for byte, which a YAML round trip would
not promise.
"""

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

DVC_YAML = "dvc.yaml"
TRACED = "data/trace_code/imports/"
"""What the stage trace_code writes: a stage's source files and their digests."""


def stage_bodies(text: str) -> dict[str, CommentedMap]:
    """For each stage of dvc.yaml the mapping that holds `cmd` and `deps`."""
    content = YAML(typ="rt").load(text) or {}
    stages = content.get("stages") or {}
    return {name: stage.get("do", stage) for name, stage in stages.items()}


def is_code(dep: object) -> bool:
    """Whether a dependency is what trace_code wrote of the stage's code."""
    return isinstance(dep, str) and dep.startswith(TRACED)


def write_gathered(lines: list[str], name: str, body: CommentedMap, wanted: set[str]) -> None:
    """Replace in `lines` all dependencies that are not code by `wanted`, sorted, below the code.

    So that the same plan always gives the same text.

    Args:
        lines: of dvc.yaml; changed in place.
        name: of the stage.
        body: of the stage, as `stage_bodies` of the same lines gives it.
        wanted: all of its other dependencies.

    Raises:
        ValueError: the stage has no `deps:` list to fill.
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
            f"Add a line `deps:` under its cmd."
        )
    return body.lc.key("deps")[0], deps if isinstance(deps, CommentedSeq) else CommentedSeq()
