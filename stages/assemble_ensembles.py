"""Reward models of the plan as ensembles: a folder each, which others name like a reward model.

    python -m stages.assemble_ensembles

Reads which entry of train_reward_model is which member of which ensemble, and the models; writes
`ensembles/<ensemble>/<member>/`, without a copy where the file system can link. Each member is a
stage of its own, cached and scheduled by itself; a stage that scores with an ensemble cannot list
its members, for DVC has no lists in a template, so it depends on one folder of this stage's output
and runs again when that folder changes, not when another ensemble does. This stage waits for all
reward models, though: none can be made from what an ensemble, any of them, had a part in.
"""

import os
import shutil
from pathlib import Path

from stages import params
from stages.params import Params
from stages.recipe import Recipe
from stages.recipe_entries import RewardModel
from stages.runtime import outputs, process, runs

MODELS = Path("data/train_reward_model")
OUTPUT = Path("data/assemble_ensembles")


class Config(Params):
    """What assemble_ensembles reads of params.yaml."""

    plan: Recipe


def main() -> None:
    """Write `ensembles/` (empty where the plan has no reward model) and `metrics.json`."""
    with runs.start("assemble_ensembles", OUTPUT) as run:
        ensembles = members(params.load(Config).plan.train_reward_model)
        with outputs.replace(OUTPUT / "ensembles") as temporary:
            temporary.mkdir()
            for ensemble, entries in ensembles.items():
                for number, entry in entries.items():
                    target = temporary / ensemble / str(number)
                    shutil.copytree(MODELS / entry / "reward_model", target, copy_function=link)
        sizes = {ensemble: len(entries) for ensemble, entries in ensembles.items()}
        run.log(0, {f"members/{ensemble}": size for ensemble, size in sizes.items()})
        outputs.write_json(OUTPUT / "metrics.json", {"members": sizes})


def members(entries: dict[str, RewardModel]) -> dict[str, dict[int, str]]:
    """Of each ensemble, by name, its entries of train_reward_model, by number.

    Raises:
        ValueError: two members of one ensemble have one number.
    """
    found: dict[str, dict[int, str]] = {}
    for entry, words in sorted(entries.items()):
        numbered = found.setdefault(words.ensemble, {})
        if words.member in numbered:
            raise ValueError(
                f"ensemble '{words.ensemble}': train_reward_model has '{numbered[words.member]}' "
                f"and '{entry}' as member {words.member}. The number seeds a member, so give each "
                f"its own."
            )
        numbered[words.member] = entry
    return {name: dict(sorted(numbered.items())) for name, numbered in sorted(found.items())}


def link(source: str, target: str) -> None:
    """A hard link to a model's file, or a copy on a file system that has none.

    Neither is ever written into: a stage replaces its outputs, and DVC makes them read-only.
    """
    try:
        # Followed first: DVC may have put a symbolic link to its cache there.
        os.link(Path(source).resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


if __name__ == "__main__":
    process.run(main)
