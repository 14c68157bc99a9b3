"""Edit the lists of dvc.yaml's stages in place.

All other text, comments included, stays as it is byte for byte, which a YAML round trip would
not promise.
"""

from collections.abc import Callable

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


def is_code(dep: str) -> bool:
    """Whether a dependency is what trace_code wrote of the stage's code."""
    return dep.startswith(TRACED)


def write_gathered(lines: list[str], name: str, body: CommentedMap, wanted: set[str]) -> None:
    """Replace in `lines` all dependencies that are not code by `wanted`, sorted, below the code.

    As `write_listed` does.
    """
    write_listed(lines, name, body, "deps", wanted, kept=is_code)


def write_listed(
    lines: list[str],
    name: str,
    body: CommentedMap,
    key: str,
    wanted: set[str],
    *,
    kept: Callable[[str], bool],
) -> None:
    """Replace in `lines` the items of one list that are not kept by `wanted`, sorted, below those.

    So that the same plan always gives the same text.

    Args:
        lines: of dvc.yaml; changed in place.
        name: of the stage.
        body: of the stage, as `stage_bodies` of the same lines gives it; above the list, lines may
            not have been added or taken away since.
        key: of the list, `deps` or `outs`.
        wanted: all items but the kept ones.
        kept: whether an item stays as it is.

    Raises:
        ValueError: the stage has no such list to fill.
    """
    header, listed = list_of(name, body, key)
    places = [(listed.lc.item(index)[0], item) for index, item in enumerate(listed)]
    last = max((line for line, item in places if kept(item)), default=header)
    indent = " " * (listed.lc.item(0)[1] - 2 if places else body.lc.key(key)[1] + 2)
    others = {line for line, item in places if not kept(item)}
    remaining = [line for number, line in enumerate(lines) if number not in others]
    below = last + 1 - sum(line < last for line in others)
    remaining[below:below] = [f"{indent}- {item}\n" for item in sorted(wanted)]
    lines[:] = remaining


def list_of(name: str, body: CommentedMap, key: str) -> tuple[int, CommentedSeq]:
    """The line of a stage's `deps:` or `outs:` and the list below it.

    Raises:
        ValueError: there is none, or not one path a line.
    """
    listed = body.get(key)
    block = isinstance(listed, CommentedSeq) and bool(listed) and not listed.fa.flow_style()
    plain = block and all(isinstance(item, str) for item in listed)
    if key not in body or not (listed is None or plain):
        raise ValueError(
            f"{DVC_YAML}: stage '{name}' has no `{key}:` written as one path a line, without "
            f"options. Add a line `{key}:` under its cmd."
        )
    return body.lc.key(key)[0], listed if isinstance(listed, CommentedSeq) else CommentedSeq()
