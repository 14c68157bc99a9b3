"""Refuse wrong words and numbers before any work, and delete what no row makes any more.

    python -m stages.plan --default params.yaml --iterative-dpo stages/recipes/iterative_dpo.yaml

The words are those of `tables`: where rows are. Reads these files and presets.yaml, and validates
every entry point's `Config`; says everything that is wrong at once, with what was meant. Then
deletes the folders of rows that are gone, and writes data/plan.json: the rows of every table.

    python -m stages.plan --check

only checks, the recipes that dvc.yaml names included, as `runtime.preflight` does at first.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stages import auto, configs, params, tables
from stages.params import PARAMS_PATH, PRESETS_PATH
from stages.rewards.pool_scores import WITHOUT_A_REWARD
from stages.rows import DATA, TABLES
from stages.runtime import outputs, preflight, process
from stages.tables import PAIRS, POLICIES, POOLS, REWARDS, STEPS, Tables

PLAN = DATA / "plan.json"
FOLDERS = {table: table for table in TABLES} | {
    **dict.fromkeys(("samples", "evaluations"), POLICIES),
    **dict.fromkeys(("runs/train", "runs/sample", "runs/evaluate"), POLICIES), "runs/pool": POOLS,
    "runs/label": PAIRS, "runs/label_steps": STEPS, "runs/reward": REWARDS,
}  # fmt: skip
"""Folder under data/ -> the table of which it holds a folder a row."""


def main(*words: str) -> None:
    """Check; then tidy and write plan.json, unless only a check is asked for."""
    process.die_with_dvc("plan")
    looked_at, (paths, problems) = preflight.digest(), switched_on()
    if words != ("--check",):
        paths = [Path(word) for word in words[1::2]]
        if not words or len(words) % 2 or any(one.suffix != ".yaml" for one in paths):
            sys.exit(f"found {' '.join(words) or 'no table'}; expected:\n\n{__doc__}")
    rows, found = check(paths)
    if problems := [*problems, *found]:
        sys.exit("\n  ".join(["The plan is not valid; correct this:", *problems]))
    preflight.remember(looked_at)
    if words != ("--check",):
        if (facts := params.measured(params.read())) is not None:
            auto.show(params.read(), params.read(PRESETS_PATH), facts)
        tidy(DATA, rows)
        outputs.write_json(PLAN, rows)
    sys.stdout.write(f"The plan is valid: {sum(map(len, rows.values()))} rows.\n")


def check(paths: Iterable[Path]) -> tuple[Tables, list[str]]:
    """The rows of these files, and everything that is wrong with them and with params.yaml."""
    rows, problems = tables.read(list(paths))
    try:
        content, presets = params.read(PARAMS_PATH), params.read(PRESETS_PATH)
    except ValueError as error:
        return rows, list(dict.fromkeys([*problems, str(error)]))
    if not problems:  # or what names a row that is left out would seem wrong, too
        problems += [*tables.wrong_names(rows), *wrong_claims(content, rows)]
    modules = configs.entry_points()
    return rows, [*problems, *configs.find_problems(content, presets, rows, modules)]


def wrong_claims(content: dict[str, Any], rows: Tables) -> Iterator[str]:
    """A baseline that is no policy, a reward whose name is taken, seeds not each once."""
    baseline, seeds = content.get("baseline"), content.get("seeds")
    for name in rows[REWARDS].keys() & set(WITHOUT_A_REWARD):
        yield f"rewards.{name}: a way to choose that needs no reward has this name; take another"
    if isinstance(baseline, str) and baseline not in rows[POLICIES]:
        yield f"baseline: no row makes {baseline!a:.103}{tables.meant(baseline, rows[POLICIES])}"
    # What is of another type is told with all that is.
    numbers = isinstance(seeds, list) and all(type(one) is int for one in seeds)
    if numbers and (not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0):
        yield f"seeds: expected at least one, each once and none below 0, found {seeds}"


def switched_on(path: Path = configs.DVC_YAML) -> tuple[list[Path], list[str]]:
    """params.yaml and the recipes that dvc.yaml names, and those whose `tables` lacks them."""
    paths, problems = [PARAMS_PATH], []
    named = params.read(path).get("vars") or [] if path.exists() else []
    for recipe in [Path(one) for one in named if isinstance(one, str)]:
        try:
            told = (params.read(recipe) or {}).get("tables")
        except (OSError, ValueError) as error:
            problems.append(f"{path}: vars: {error}")
            continue
        if not isinstance(told, dict) or str(recipe) not in told.values():
            expected = f"tables: {{{recipe.stem.replace('_', '-')}: {recipe}}}"
            problems.append(f"{recipe}: tables: expected `{expected}`, found {told!r}")
        paths.append(recipe)
    return paths, problems


def tidy(data: Path, rows: Tables) -> None:
    """Make the folder of every table, and delete what is in it that no row makes."""
    for folder, table in FOLDERS.items():
        kept = {*rows[table], *([tables.BASE] if folder == POLICIES else [])}
        (data / folder).mkdir(parents=True, exist_ok=True)
        for path in sorted((data / folder).iterdir()):
            name = path.name.removeprefix(".").removesuffix(".partial").removesuffix(".old")
            if path.name not in kept and name not in kept:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


if __name__ == "__main__":
    process.run(main)
