"""Check params.yaml and presets.yaml, before anything runs.

    python -m stages.plan --default params.yaml --iterative-dpo stages/recipes/iterative_dpo.yaml

The arguments are the key `tables`: params.yaml and the recipes that dvc.yaml names. Errors are
reported before anything runs, all at once, each with the expected and the actual text and a
suggestion. Then the stage deletes the folders of deleted rows and writes three files:
data/plan.json, the rows of every table; data/inputs.json, the digests of the files that
prepare_data reads (also of a model in a folder), so that an edit reruns it: DVC runs this stage
whenever a file in data/raw changes; and data/raw.json, the digests of all files there, for
`flows.why`. A row on a data set of the hub depends on a file that holds its id,
data/hub/<owner>/<name>. The user's surrogates and advantages are tried on small tensors
(`loops/own_method`) whenever one is edited.

    python -m stages.plan --check

only checks, without the checks that need torch. `runtime.preflight` begins with it, so that no name
reaches a shell unchecked.
"""

import hashlib
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from stages import stand_ins
from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml, suggest
from stages.own_modules import IN_PRESETS, get_own_word
from stages.params import measured_facts, pick_presets, print_table
from stages.rewards.pool_scores import WITHOUT_A_REWARD
from stages.rows import BASE, DATA, STAGES, TABLES
from stages.runtime import checkout, outputs, preflight, process
from stages.sources.problem_files import FileSource, list_local_files
from stages.tables import (
    ENVIRONMENTS,
    EPISODES,
    HUB,
    NAME,
    POLICIES,
    RAW,
    REWARDS,
    Tables,
    check_names,
    list_rows,
    read_tables,
)

DVC_YAML = Path("dvc.yaml")
RECIPES = Path("stages/recipes")
PLAN = DATA / "plan.json"
INPUTS = DATA / "inputs.json"
"""SHA-256 of every file that prepare_data reads, which depends on this list."""
RAW_FILES = DATA / "raw.json"
"""SHA-256 of every file in data/raw."""
FOLDERS = (
    {table: table for table in TABLES}
    | {f"journals/{stage}": table for table, stage in STAGES.items()}
    | dict.fromkeys(("samples", "evaluations", "journals/sample", "journals/evaluate"), POLICIES)
)
"""Folder under data/ -> table, for each row of which it holds a folder."""
NO_ROWS = ".no-rows"


def main(*words: str) -> None:
    """Check; then, without `--check`, write plan.json and delete outputs of deleted rows."""
    process.die_with_dvc("plan")
    only_checks, (paths, problems) = words == ("--check",), list_tables()
    if only_checks:
        tables, more = check_plan(paths)
        problems += more
    elif {*map(Path, words[1::2])} != {*paths}:
        sys.exit(f"found {' '.join(words) or 'no table'}; expected:\n\n{__doc__}")
    else:
        preflight.check()  # all that `--check` checks, in a process that imports no torch
        tables, _ = read_tables(paths)
        problems = list(check_own_functions(tables))
    if problems:
        sys.exit("\n  ".join(["The plan is not valid; correct this:", *problems]))
    if not only_checks:
        write_plan(read_yaml(), tables)
    sys.stdout.write(f"The plan is valid: {sum(map(len, tables.values()))} rows.\n")


def write_plan(params: dict[str, Any], tables: Tables) -> None:
    """Write the outputs of this stage, delete those of deleted rows, and print warnings."""
    if (facts := measured_facts(params)) is not None:
        print_table(params, pick_presets(read_yaml(PRESETS_PATH), tables), facts)
    delete_stale(DATA, tables)
    outputs.write_json(INPUTS, digest_inputs(params))
    raw = (DATA / RAW).rglob("*")
    outputs.write_json(RAW_FILES, digest_files(path for path in raw if path.is_file()))
    write_hub_ids(DATA / HUB, tables)
    # The report depends on this file, so empty tables that few plans have are not written.
    optional = (ENVIRONMENTS, EPISODES)
    written = {name: rows for name, rows in tables.items() if rows or name not in optional}
    outputs.write_json(PLAN, written)
    if (path := params["model"]["path"]) is not None:
        from stages.models import model_files  # with torch and transformers

        is_packaged = path.startswith(model_files.PACKAGE)
        is_watched = is_packaged or Path(path).is_relative_to(DATA / RAW)
        if not is_watched and model_files.is_local(path):
            sys.stdout.write(
                f"model.path {path} is outside {DATA / RAW}, so DVC does not notice an edit of its "
                f"files: after one, run `dvc repro -f plan`\n"
            )


def check_plan(paths: Iterable[Path]) -> tuple[Tables, list[str]]:
    """The rows of these files, and all errors in them and in params.yaml."""
    tables, problems = read_tables(list(paths))
    problems = [*checkout.find_outside_folders(), *problems]
    try:
        params, presets = read_yaml(PARAMS_PATH), read_yaml(PRESETS_PATH)
    except ValueError as error:
        return tables, list(dict.fromkeys([*problems, str(error)]))
    if not problems:  # else names of rejected rows would be errors, too
        problems += [*check_names(tables), *check_claims(params, tables)]
    from stages import plan_checks  # imports every entry point, which takes seconds

    entry_points = plan_checks.load_entry_points()
    problems += plan_checks.find_problems(params, presets, tables, entry_points)
    return tables, problems


def check_own_functions(tables: Tables) -> Iterator[str]:
    """Errors in the user's surrogates and advantages that presets of rows name.

    They are tried on tensors; torch is imported only if there are any.
    """
    entries = pick_presets(read_yaml(PRESETS_PATH), {POLICIES: tables[POLICIES]}).values()
    named = [(key, get_own_word(entry.get(key))) for entry in entries for key in IN_PRESETS]
    for choice, word in sorted({(choice, word) for choice, word in named if word}):
        from stages.loops import own_method

        try:
            own_method.load(choice, word, files=None)
        except ValueError as error:
            yield str(error)


def digest_inputs(params: dict[str, Any]) -> dict[str, str]:
    """SHA-256 of the files of `data.source` and of `model.path`, by path."""
    source, digests = params["data"]["source"], dict[str, str]()
    if params["model"]["path"] is not None:
        from stages.models import model_files  # with torch and transformers

        origin = model_files.describe_origin(params["model"]["path"])
        files = {} if origin is None else origin.files
        digests = {f"model.path/{name}": digest for name, digest in files.items()}
        template = params["model"].get("chat_template")
        if template not in (None, "keep_thoughts"):
            text = model_files.read_template(template) or ""
            digests["model.chat_template"] = hashlib.sha256(text.encode()).hexdigest()
    if isinstance(source, dict) and source.get("kind", "files") != "files":
        return digests  # generated problems
    sources = [FileSource(**item) for item in (source if isinstance(source, list) else [source])]
    return digests | digest_files(file for item in sources for file in list_local_files(item))


def digest_files(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files, by path."""
    digests = dict[str, str]()
    for path in sorted(set(files)):
        with path.open("rb") as file:
            digests[path.as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def check_claims(params: dict[str, Any], tables: Tables) -> Iterator[str]:
    """Errors: a baseline that is not a policy, a reward with a reserved name, repeated seeds."""
    baseline, seeds = params.get("baseline"), params.get("seeds")
    for name in tables[REWARDS].keys() & set(WITHOUT_A_REWARD):
        yield f"rewards.{name}: a selection without a reward has this name; take another"
    if isinstance(baseline, str) and baseline not in tables[POLICIES]:
        yield f"baseline: no row makes {baseline!a:.103}{suggest(baseline, tables[POLICIES])}"
    elif isinstance(baseline, str) and tables[POLICIES][baseline].get("control"):
        yield f"baseline: {baseline} is a control; take the policy that it starts from"
    # Every `Config` reports seeds of another type.
    numbers = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
    if numbers and (not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0):
        yield f"seeds: expected at least one, all different and none below 0, found {seeds}"


def list_tables(path: Path = DVC_YAML) -> tuple[list[Path], list[str]]:
    """params.yaml and the recipes that dvc.yaml names, and errors in names and `tables`."""
    paths, problems = [PARAMS_PATH], []
    for name in (read_yaml(path).get("vars") or []) if path.exists() else []:
        if isinstance(name, str) and NAME.fullmatch(Path(name).name) is None:
            # The name becomes a word of this stage's command.
            problems.append(
                f"{path}: vars: expected a file's name of letters, digits, `-`, `_`, `.`, found "
                f"{name!a:.103}: rename the file"
            )
        elif not isinstance(name, str) or Path(name).parent != RECIPES:
            problems.append(
                f"{path}: vars: expected files in {RECIPES}, where a change is noticed, found "
                f"{name!a:.103}: move the rows there"
            )
        elif not Path(name).is_file():
            problems.append(f"{path}: vars: there is no file {name!a:.103}: correct its name")
        else:
            paths.append(Path(name))
    for file in paths:
        # DVC writes the keys of `tables` into the command of this stage.
        key = "default" if file == PARAMS_PATH else file.stem.replace("_", "-")
        with suppress(ValueError):  # `check_plan` reports the error in the file
            if (content := read_yaml(file).get("tables")) != {key: str(file)}:
                expected = f"`tables: {{{key}: {file}}}`"
                problems.append(f"{file}: tables: expected {expected}, found {content!a:.103}")
    return paths, problems


def write_hub_ids(folder: Path, tables: Tables) -> None:
    """Write a file with the id of each data set of the hub that a row reads; delete all others.

    Without such a row the folder holds one file, like the folder of an empty table.
    """
    words = [row.words.get("on", "").partition("/") for row in list_rows(tables)]
    names = {name for kind, _, name in words if kind == HUB}
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    if not names:
        (folder / NO_ROWS).touch()
    for name in sorted(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n", encoding="utf-8")


def delete_stale(data: Path, tables: Tables) -> None:
    """Make the folder of every table, and delete files in it that no row makes.

    The folder of an empty table holds one file, since every DVC command warns of empty folders.
    """
    for folder, table in FOLDERS.items():
        names = {*tables[table], *([BASE] if folder == POLICIES else [])}
        (data / folder).mkdir(parents=True, exist_ok=True)
        for path in sorted((data / folder).iterdir()):
            row = path.name
            if row.startswith("."):  # left by `runtime/outputs`; no row has such a name
                row = row[1:].rpartition(".")[0]  # `.sft.old`, `.sft.partial`
            if row not in names:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if not names:
            (data / folder / NO_ROWS).touch()


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:  # this process computes nothing else
        with stand_ins.importing_declarations():
            from stages import plan_checks

            plan_checks.load_entry_points()
    process.run(main)
