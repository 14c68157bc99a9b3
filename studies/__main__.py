"""Run studies, after the stages that they depend on.

    python -m studies search                     one study
    python -m studies checkpoints@ppo gate       several; `<study>@<row>` for one row of it
    python -m studies all --force                every study, with options of `dvc repro`
    python -m studies --check                    only check that all names are safe in a shell

DVC reads every dvc.yaml of the repository, so stages that were never run would appear in `dvc
status`, `dvc checkout`, `dvc metrics show` and the like, with their outputs missing. Therefore the
studies' stages are defined in studies.yaml beside this file, which DVC does not read. This command
copies the requested studies, and the studies that they read, into studies/dvc.yaml, and calls `dvc
repro studies/dvc.yaml:<study>`. They are stages of the same DVC project as the pipeline's: stale
upstream stages run, results are cached, restored and pushed. Stages without a result when `dvc
repro` ends are removed again. Commit studies/dvc.yaml with its dvc.lock to keep the results of
studies with those of the pipeline.

Names of rows are part of shell commands. So those of the pipeline (`preflight`) and of the studies
are checked before DVC is called, and again, by `--check`, in each command with such a name.
"""

import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock
from ruamel.yaml import YAML

from stages import tables
from stages.config import read_yaml
from stages.runtime import outputs, preflight
from stages.runtime.outputs import PIPE
from studies.study import DEFINITIONS, DVC_YAML, STUDIES, STUDY_PARAMS

ALL = "all"
LOCK = PIPE / "studies.lock"


def main(*words: str) -> int:
    """Run the named studies, or only check names; returns the exit status of `dvc repro`."""
    if {"-h", "--help"} & {*words}:
        print(__doc__)
        return 0
    preflight.check()
    if words == ("--check",):
        check_row_names(read_yaml(DEFINITIONS)["stages"], read_yaml(STUDY_PARAMS))
        return 0
    names = [word for word in words if not word.startswith("-")]
    options = [word for word in words if word.startswith("-")]
    stages = add_stages(names)
    try:
        return run_dvc(["repro", *options, *(f"{DVC_YAML}:{stage}" for stage in stages)])
    finally:
        remove_unrun(stages)


def list_stages(
    definitions: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Study -> DVC's names of its stages: the study's name, or `<study>@<row>` of its `foreach`."""
    return {
        study: [f"{study}@{row}" for row in read_rows(stage, parameters)]
        if "foreach" in stage
        else [study]
        for study, stage in definitions.items()
    }


def resolve_names(
    names: Iterable[str], definitions: Mapping[str, Any], parameters: Mapping[str, Any]
) -> list[str]:
    """DVC's names of the stages of the named studies, and of the studies whose results they read.

    `checkpoints` names every stage of its `foreach`; `all` every study. A ValueError lists unknown
    names.
    """
    stages_by_study = list_stages(definitions, parameters)
    valid = [stage for stages in stages_by_study.values() for stage in stages]
    pending = [*stages_by_study] if ALL in names else [*names]
    unknown = [name for name in pending if name not in (*stages_by_study, *valid)]
    if unknown or not pending:
        raise ValueError(
            f"expected names of studies, found {', '.join(unknown) or 'none'}: choose of "
            f"{', '.join(dict.fromkeys([ALL, *stages_by_study, *valid]))}"
        )
    selected = set[str]()
    while pending:
        name = pending.pop()
        stages = {*stages_by_study.get(name, [name])} - selected
        selected |= stages
        if stages:
            pending += list_upstream_studies(definitions[name.partition("@")[0]])
    return [stage for stage in valid if stage in selected]


def read_rows(
    definition: Mapping[str, Any], parameters: Mapping[str, Any]
) -> list[str] | dict[str, Any]:
    """Rows of a study's `foreach`, such as `${checkpoints.runs}`: names, or rows by name."""
    value: Any = parameters
    for key in re.fullmatch(r"\$\{(.*)\}", definition["foreach"])[1].split("."):  # type: ignore[index]
        value = value[key]
    return value


def check_row_names(definitions: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """Raise a ValueError that lists invalid names of the studies' rows."""
    wrong = [
        f"{study}: {row!a:.103}"
        for study, stage in definitions.items()
        if "foreach" in stage
        for row in read_rows(stage, parameters)
        if not isinstance(row, str) or tables.NAME.fullmatch(row) is None
    ]
    if wrong:
        raise ValueError(
            f"{STUDY_PARAMS}: expected names of at most 100 letters, digits, `-`, `_`, `.`, found "
            f"{', '.join(wrong)}: rename the row, or correct the name of it"
        )


def list_upstream_studies(definition: Mapping[str, Any]) -> list[str]:
    """Studies whose results a stage depends on."""
    paths = [Path(path) for path in definition.get("do", definition)["deps"]]
    return [path.relative_to(STUDIES).parts[0] for path in paths if path.is_relative_to(STUDIES)]


def add_stages(names: Iterable[str]) -> list[str]:
    """Add the stages of studies, and of their upstream studies, to studies/dvc.yaml; their names.

    Stages that are already in it get their present definition.
    """
    definitions, parameters = read_yaml(DEFINITIONS)["stages"], read_yaml(STUDY_PARAMS)
    check_row_names(definitions, parameters)
    stages = resolve_names(names, definitions, parameters)
    PIPE.mkdir(exist_ok=True)
    with FileLock(LOCK):
        valid = {*resolve_names([ALL], definitions, parameters)}
        _write_dvc_yaml(_stages_in_dvc_yaml() & valid | {*stages})
    return stages


def remove_unrun(stages: Iterable[str]) -> None:
    """Remove stages without a result in studies/dvc.lock."""
    with FileLock(LOCK):
        lock = DVC_YAML.with_suffix(".lock")
        locked = read_yaml(lock)["stages"] if lock.is_file() else {}
        _write_dvc_yaml(_stages_in_dvc_yaml() - {stage for stage in stages if stage not in locked})


def _stages_in_dvc_yaml() -> set[str]:
    content = read_yaml(DVC_YAML)["stages"] if DVC_YAML.is_file() else {}
    return {
        f"{study}@{row}" if row else study
        for study, stage in content.items()
        for row in stage.get("foreach", [""])
    }


def _write_dvc_yaml(stages: set[str]) -> None:
    """Write the definitions of the stages; without stages, no file."""
    content, parameters = dict[str, Any](), read_yaml(STUDY_PARAMS)
    for study, definition in read_yaml(DEFINITIONS)["stages"].items():
        of_row = definition.get("do", definition)
        of_row["wdir"] = ".."
        of_row["deps"] = [path for pattern in of_row["deps"] for path in _list_files(pattern)]
        rows = sorted(stage.partition("@")[2] for stage in stages if stage.startswith(f"{study}@"))
        if study in stages:
            content[study] = definition
        elif rows:
            of_study = read_rows(definition, parameters)
            selected = {row: of_study[row] for row in rows} if isinstance(of_study, dict) else rows
            content[study] = definition | {"foreach": selected}
    if not content:
        DVC_YAML.unlink(missing_ok=True)
        return
    parameters = ".." / STUDY_PARAMS  # relative to dvc.yaml, as is `wdir`
    with outputs.replace(DVC_YAML) as temporary, temporary.open("w", encoding="utf-8") as file:
        YAML().dump({"vars": [parameters.as_posix()], "stages": content}, file)


def _list_files(pattern: str) -> list[str]:
    """The files of a pattern, sorted; a path without `*`, or with `${..}`, unchanged."""
    return sorted(map(str, Path().glob(pattern))) if "*" in pattern else [pattern]


def run_dvc(arguments: list[str]) -> int:
    """Run DVC; returns its exit status. Ctrl-C reaches DVC directly; SIGTERM is passed on."""
    with subprocess.Popen([sys.executable, "-m", "dvc", *arguments]) as dvc:
        handlers = {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: lambda *_: dvc.terminate()}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            return dvc.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
