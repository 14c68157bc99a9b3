"""Keep what stages gather, and what they write beside others' outputs, equal to the plan.

    python -m flows.gather          write them into dvc.yaml; needed after a change of `plan`
    python -m flows.gather check    exit 1 and say what to do where they differ

A stage says `meta: {gathers: [data/evaluate_policy/*/metrics.json]}`; each pattern stands for the
outputs of other stages that it matches, part by part (`*` stands for no `/`). With
`meta: {beside: {probe_policy.policy: model_card.md}}` it has an output `model_card.md` beside each
folder of a trained policy that an entry of `plan.probe_policy` names. dvc.yaml itself has no way
to say that: a template cannot be a list.
"""

import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from dvc.exceptions import DvcException
from ruamel.yaml import YAML

from flows import dep_lines
from flows.dep_lines import DVC_YAML
from flows.graph import StageNode, read_graph

RECIPES = "recipes.yaml"


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
    """The text of dvc.yaml with every gathering stage's data dependencies made exact.

    Raises:
        ValueError: such a stage has no `deps:` list, or DVC cannot read the plan.
    """
    text = with_neighbours(text, root)
    bodies = dep_lines.stage_bodies(text)
    gathering = {name: body for name, body in bodies.items() if patterns(body)}
    if not gathering:
        return text
    try:
        graph = read_graph(root)
    except DvcException as error:
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        raise ValueError(f"dvc cannot read the pipeline: {error}{cause}") from error
    lines = text.splitlines(keepends=True)
    # From the last stage to the first, so that line numbers above an edit stay valid.
    for name, body in reversed(list(gathering.items())):
        dep_lines.write_gathered(lines, name, body, expand(patterns(body), graph, name))
    return "".join(lines)


def with_neighbours(text: str, root: Path) -> str:
    """The text with every output that lies beside another stage's.

    Raises:
        ValueError: such a stage has no `outs:` list, or recipes.yaml has no such table and word.
    """
    lines = text.splitlines(keepends=True)
    for name, body in reversed(list(dep_lines.stage_bodies(text).items())):
        if beside := (body.get("meta") or {}).get("beside"):
            own = partial(is_own, name)
            dep_lines.write_listed(lines, name, body, "outs", neighbours(beside, root), kept=own)
    return "".join(lines)


def is_own(name: str, out: object) -> bool:
    """Whether an output lies in the folder of the stage `name`."""
    return str(out).startswith(f"data/{name}/")


def neighbours(beside: Mapping[str, str], root: Path) -> set[str]:
    """The files beside the folders that the plan names, where they are of the word's kind.

    `train_dpo/dpo/policy` is a policy; `prepare_data/tokenizer`, a base model, is not ours.

    Raises:
        ValueError: recipes.yaml has no such table, or an entry without that word.
    """
    plan = YAML(typ="safe").load(root / RECIPES)["plan"]
    found = set()
    for word, file in beside.items():
        table, _, key = word.partition(".")
        if table not in plan or any(key not in entry for entry in plan[table].values()):
            raise ValueError(f"{RECIPES}: expected a word `{key}` in each entry of plan.{table}")
        folders = [PurePosixPath("data", entry[key]) for entry in plan[table].values()]
        found |= {str(folder.parent / file) for folder in folders if folder.name == key}
    return found


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
