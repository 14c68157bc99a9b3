"""Outputs of one stage that lie beside another's, as the plan makes those.

    meta: {beside: {probe_policy.policy: model_card.md}}

says that the stage writes a file `model_card.md` beside each folder of a trained policy that an
entry of `plan.probe_policy` names: beside `train_dpo/dpo/policy`, not beside
`prepare_data/tokenizer`, a base model, whose last part is not `policy`.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from ruamel.yaml import YAML

from flows import dep_lines

RECIPES = "recipes.yaml"


def written(text: str, root: Path) -> str:
    """The text of dvc.yaml with every such output, and no other outside its stage's folder.

    Only where DVC has read the pipeline of `root`: what is no plan, DVC says better.

    Raises:
        ValueError: such a stage has no `outs:` list that can be filled, or the plan no such table
            or word.
    """
    lines = text.splitlines(keepends=True)
    # From the last stage to the first, so that line numbers above an edit stay valid.
    for name, body in reversed(list(dep_lines.stage_bodies(text).items())):
        if words := (body.get("meta") or {}).get("beside"):
            outputs = neighbours(words, YAML(typ="safe").load(root / RECIPES)["plan"])
            own = partial(is_own, name)
            dep_lines.write_listed(lines, name, body, "outs", outputs, kept=own)
    return "".join(lines)


def is_own(name: str, out: str) -> bool:
    """Whether an output lies in the folder of the stage `name`."""
    return out.startswith(f"data/{name}/")


def neighbours(beside: Mapping[str, str], plan: Mapping[str, Any]) -> set[str]:
    """The files beside the folders that the plan names, where they are of the word's kind.

    Raises:
        ValueError: the plan has no such table, or an entry without that word.
    """
    found: set[str] = set()
    for place, file in beside.items():
        table, _, word = place.partition(".")
        entries = list((plan.get(table) or {}).values())
        if table not in plan or not all(isinstance(one.get(word), str) for one in entries):
            raise ValueError(f"{RECIPES}: expected a word `{word}` in each entry of plan.{table}")
        folders = [PurePosixPath("data", one[word]) for one in entries]
        found |= {str(folder.parent / file) for folder in folders if folder.name == word}
    return found
