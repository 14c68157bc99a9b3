"""A change makes stale exactly the stages that can read it.

Who can read a file is what Python's own imports show (`imported`), who can read a parameter what
moving it shows (`parameters`), who can read a preset the rows that have it. DVC says what is stale,
of a copy of the repository in which everything was done (`pipeline`). A few changes are tried each
time, all of them weekly.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import presets
import pytest
from pipeline_copy import ROOT, change_params
from staleness import imported, parameters
from staleness.parameters import Reader
from staleness.pipeline import DonePipeline, add_rows

from stages import plan_checks
from stages.config import read_yaml
from stages.rows import ENTRY_POINTS
from studies.study import STUDY_PARAMS

pytestmark = pytest.mark.slow

METHODS = ("sft", "dpo", "ppo", "grpo")
"""Sections of params.yaml that `train` watches for its own kind alone."""
COPIES = frozenset(
    f"retrain@{name}" for name in read_yaml(ROOT / STUDY_PARAMS)["retrain"]["experiments"]
)
"""Studies that run stages in a copy of all files, with the whole of params.yaml."""
READ_PRESETS = COPIES | {"gate"}
"""Studies that look up the presets of whichever rows there are."""
WATCHED_APART = frozenset({"stages/presets.yaml", "stages/plan.py", "stages/trace_code.py"})
"""By each stage for itself; what the other two look at, rows and code, every stage depends on."""
SOURCES = [
    name
    for folder in ("stages", "studies")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if (name := path.relative_to(ROOT).as_posix()) not in WATCHED_APART
]
PARAMETERS = {
    name: key
    for key in parameters.leaves(read_yaml(ROOT / "params.yaml"))
    if (name := ".".join(key)) != "model.path"
}
"""But for the model: what `auto` makes of another one reaches a stage by way of data/prompts, which
`test_another_model_makes_stale_what_measures_it` looks at."""
# Tried each time: a file of each layer, parameters, a preset.
SOME_SOURCES = [
    "stages/evaluate.py", "stages/stage.py", "stages/loops/rl.py", "stages/models/policy.py",
    "stages/algorithms/kl.py", "stages/runtime/journal.py",
]  # fmt: skip
# A judge may read what is sampled, so labels follow each limit.
SOME_PARAMETERS = ["sampling.test.max_new_tokens", "dpo.batch_size"]
SOME_PRESETS = ["dpo_low_beta"]


def weekly(every: Any, some: list[str]) -> list[Any]:
    """The names as parameters of a test; those that are not tried each time have the mark."""
    assert set(some) <= set(every)
    marks = {name: () if name in some else pytest.mark.weekly for name in every}
    return [pytest.param(name, marks=mark) for name, mark in marks.items()]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> DonePipeline:
    modules = plan_checks.load_entry_points()

    def change(content: dict[str, Any], _: dict[str, Any]) -> None:
        add_rows(content, presets.CONTENT, modules)

    return DonePipeline(tmp_path_factory.mktemp("done"), change)


@pytest.fixture(scope="module")
def readers(pipeline: DonePipeline) -> dict[str, Reader]:
    return {name: Reader.of_command(name, item) for name, item in pipeline.commands().items()}


@pytest.fixture(scope="module")
def imports(readers: dict[str, Reader]) -> dict[str, set[str]]:
    """Stage -> the files that it imports."""
    modules = {name: item.module for name, item in readers.items()}
    own_modules = {name: name_own_module(item) for name, item in readers.items()}
    of_rows = {f"stages.{module}" for module in ENTRY_POINTS.values()}
    modules_of_all = {*modules.values(), *of_rows}
    command = [sys.executable, imported.__file__, *sorted(modules_of_all)]
    command += sorted({*own_modules.values()} - {""})
    completed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    files = {module: set(item) for module, item in json.loads(completed.stdout).items()}
    result = {name: set(files[module]) for name, module in modules.items()}
    for name in COPIES:
        of_stages = (files[module] for module in modules_of_all if module.startswith("stages."))
        result[name] = result[name].union(*of_stages)
    for name, module in own_modules.items():
        result[name] |= files[module] if module else set()
    return result


def name_own_module(reader: Reader) -> str:
    """The module of one's own that a stage's row names; empty: none."""
    by, on = reader.word("by") or "", reader.word("on") or ""
    folder, _, word = (by if by.startswith("own/") else on).partition("/")
    package = "environments" if reader.name.startswith("environment@") else "rewards"
    return f"stages.{package}.own.{word}" if folder == "own" else ""


def comment(path: Path) -> None:
    path.write_text(f"{path.read_text()}\n# A comment.\n")


@pytest.mark.parametrize("name", weekly(SOURCES, SOME_SOURCES))
def test_a_file_makes_stale_who_imports_it(pipeline, imports, name: str) -> None:
    is_runtime = name.startswith("stages/runtime/")  # which can change no output
    expected = set() if is_runtime else {stage for stage in imports if name in imports[stage]}
    with pipeline.changed(name, comment):
        assert set(pipeline.stale()) == expected


@pytest.mark.parametrize("name", weekly(PARAMETERS, SOME_PARAMETERS))
def test_a_parameter_makes_stale_whom_it_can_move(pipeline, readers, name: str) -> None:
    key, content = PARAMETERS[name], read_yaml(pipeline.path / "params.yaml")

    def edit(path: Path) -> None:
        changed = parameters.with_other(content, key)
        change_params(pipeline.path, lambda mine, _: mine.update({key[0]: changed[key[0]]}))

    files = {path: read_yaml(pipeline.path / path) for path in parameters.FILES}
    moved = {item for item in readers.values() if parameters.can_move(item, key, content, files)}
    expected = {item.name for item in moved} | COPIES
    # DVC has one list for all kinds of a stage, but for the section that only one kind has.
    listed = {item.split("@")[0] for item in expected if "@" in item}
    spared = {item for item in readers if item.split("@")[0] in listed and key[0] not in METHODS}
    with pipeline.changed("params.yaml", edit):
        stale = set(pipeline.stale())
    assert expected <= stale <= expected | spared


@pytest.mark.parametrize("name", weekly(presets.READ, SOME_PRESETS))
def test_a_preset_makes_stale_its_rows_and_those_of_presets_that_inherit_from_it(
    pipeline, readers, name: str
) -> None:
    file = pipeline.path / "stages/presets.yaml"
    before = read_yaml(file)
    key = next(iter(before[name]))

    def edit(_: Path) -> None:
        def change(_: Any, mine: Any) -> None:
            mine[name][key] = parameters.other(before[name][key])

        change_params(pipeline.path, change)

    with pipeline.changed("stages/presets.yaml", edit):
        after = read_yaml(file)
        moved = {item for item in before if before[item] != after[item]}
        assert name in moved
        expected = {item for item, reader in readers.items() if reader.word("preset") in moved}
        assert set(pipeline.stale()) == expected | READ_PRESETS


def test_another_model_makes_stale_what_measures_it(pipeline) -> None:
    def edit(path: Path) -> None:
        change_params(pipeline.path, lambda mine, _: mine["model"].update({"path": "models/a"}))

    with pipeline.changed("params.yaml", edit):
        assert "prepare_data" in pipeline.stale()
