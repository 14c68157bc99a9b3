"""Check of params.yaml and presets.yaml before anything runs; outputs of deleted rows are removed.

    python -m stages.plan --default params.yaml --iterative-dpo stages/recipes/iterative_dpo.yaml

The arguments are the key `tables`: the files with rows. Typos fail before anything runs, all at
once, each with what was expected, what was found, and a suggestion. Then the folders of rows that
are gone are deleted, and two files are written: data/plan.json, the rows of every table, and
data/inputs.json, the digests of the files that prepare_data reads, so that it runs again when one
is edited: DVC has this stage look whenever something in data/raw changes.

    python -m stages.plan --check

only checks, the recipes that dvc.yaml names included, as `runtime.preflight` does at first.
"""

import hashlib
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stages import plan_checks
from stages.auto import is_generated
from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml, suggest
from stages.params import measured_facts, print_table
from stages.rewards.pool_scores import WITHOUT_A_REWARD
from stages.rows import BASE, DATA, TABLES
from stages.runtime import outputs, preflight, process
from stages.sources.problem_files import FileSource, list_local_files
from stages.tables import PAIRS, POLICIES, POOLS, REWARDS, STEPS, Tables, check_names, read_tables

DVC_YAML = Path("dvc.yaml")
PLAN = DATA / "plan.json"
INPUTS = DATA / "inputs.json"
"""SHA-256 of every file that prepare_data reads; it depends on this file."""
FOLDERS = {table: table for table in TABLES} | {
    **dict.fromkeys(("samples", "evaluations"), POLICIES),
    **dict.fromkeys(("runs/train", "runs/sample", "runs/evaluate"), POLICIES), "runs/pool": POOLS,
    "runs/label": PAIRS, "runs/label_steps": STEPS, "runs/reward": REWARDS,
}  # fmt: skip
"""Folder under data/ -> the table of which it holds a folder a row."""
NO_ROWS = ".no-rows"


def main(*words: str) -> None:
    """Check; then write plan.json and delete outputs of deleted rows, but for `--check`."""
    process.die_with_dvc("plan")
    digest, (paths, problems) = preflight.digest_files(), list_tables()
    if words != ("--check",):
        paths = [Path(word) for word in words[1::2]]
        if not words or len(words) % 2 or any(path.suffix != ".yaml" for path in paths):
            sys.exit(f"found {' '.join(words) or 'no table'}; expected:\n\n{__doc__}")
    tables, more = check_plan(paths)
    if problems := [*problems, *more]:
        sys.exit("\n  ".join(["The plan is not valid; correct this:", *problems]))
    preflight.remember(digest)
    if words != ("--check",):
        params = read_yaml()
        if (facts := measured_facts(params)) is not None:
            print_table(params, read_yaml(PRESETS_PATH), facts)
        delete_stale(DATA, tables)
        outputs.write_json(INPUTS, digest_inputs(params))
        outputs.write_json(PLAN, tables)
    sys.stdout.write(f"The plan is valid: {sum(map(len, tables.values()))} rows.\n")


def check_plan(paths: Iterable[Path]) -> tuple[Tables, list[str]]:
    """The rows of these files, and everything that is wrong with them and with params.yaml."""
    tables, problems = read_tables(list(paths))
    try:
        params, presets = read_yaml(PARAMS_PATH), read_yaml(PRESETS_PATH)
    except ValueError as error:
        return tables, list(dict.fromkeys([*problems, str(error)]))
    if not problems:  # or what names a row that is left out would seem wrong, too
        problems += [*check_names(tables), *check_claims(params, tables)]
    entry_points = plan_checks.load_entry_points()
    return tables, [*problems, *plan_checks.find_problems(params, presets, tables, entry_points)]


def digest_inputs(params: dict[str, Any]) -> dict[str, str]:
    """The SHA-256 of the files of `data.source`, by their paths."""
    source = params["data"]["source"]
    if is_generated(source):
        return {}
    sources = [FileSource(**item) for item in (source if isinstance(source, list) else [source])]
    files = [file for item in sources for file in list_local_files(item)]
    digests = dict[str, str]()
    for path in sorted(set(files)):
        with path.open("rb") as file:
            digests[path.as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def check_claims(params: dict[str, Any], tables: Tables) -> Iterator[str]:
    """A baseline that is no policy, a reward whose name is taken, seeds not each once."""
    baseline, seeds = params.get("baseline"), params.get("seeds")
    for name in tables[REWARDS].keys() & set(WITHOUT_A_REWARD):
        yield f"rewards.{name}: a way to choose that needs no reward has this name; take another"
    if isinstance(baseline, str) and baseline not in tables[POLICIES]:
        yield f"baseline: no row makes {baseline!a:.103}{suggest(baseline, tables[POLICIES])}"
    # Seeds of another type are an error of every `Config`.
    numbers = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
    if numbers and (not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0):
        yield f"seeds: expected at least one, each once and none below 0, found {seeds}"


def list_tables(path: Path = DVC_YAML) -> tuple[list[Path], list[str]]:
    """params.yaml and the recipes that dvc.yaml names, and those whose `tables` lacks them."""
    paths, problems = [PARAMS_PATH], []
    recipes = read_yaml(path).get("vars") or [] if path.exists() else []
    for recipe in [Path(name) for name in recipes if isinstance(name, str)]:
        try:
            tables = read_yaml(recipe).get("tables")
        except ValueError as error:
            problems.append(f"{path}: vars: {error}")
            continue
        if not isinstance(tables, dict) or str(recipe) not in tables.values():
            expected = f"tables: {{{recipe.stem.replace('_', '-')}: {recipe}}}"
            problems.append(f"{recipe}: tables: expected `{expected}`, found {tables!r}")
        paths.append(recipe)
    return paths, problems


def delete_stale(data: Path, tables: Tables) -> None:
    """Make the folder of every table, and delete what is in it that no row makes.

    The folder of a table without rows holds one file: DVC warns of empty ones, at every command.
    """
    for folder, table in FOLDERS.items():
        names = {*tables[table], *([BASE] if folder == POLICIES else [])}
        (data / folder).mkdir(parents=True, exist_ok=True)
        for path in sorted((data / folder).iterdir()):
            name = path.name.removeprefix(".").removesuffix(".partial").removesuffix(".old")
            if path.name not in names and name not in names:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if not names:
            (data / folder / NO_ROWS).touch()


if __name__ == "__main__":
    process.run(main)
