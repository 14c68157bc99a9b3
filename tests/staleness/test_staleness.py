"""A change makes stale exactly the stages that can read it.

Who can read a file is what Python's own imports show (`imported`), who can read a parameter what
moving it shows (`parameters`), who can read a preset the rows that have it. What is stale follows
from the dependencies that DVC has read, of a copy of the repository in which everything was done
(`pipeline`); of one change of each sort `dvc status` itself says the same.
"""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import presets
import pytest
from pipeline_copy import ROOT, change_params
from ruamel.yaml import YAML
from staleness import imported, parameters
from staleness.parameters import Reader
from staleness.pipeline import Dependencies, DonePipeline, add_rows

from stages import plan_checks
from stages.config import read_yaml
from stages.rows import ENTRY_POINTS, TABLES
from stages.tables import GLOBAL_KEYS
from studies.study import STUDY_PARAMS

pytestmark = pytest.mark.slow

PARAMS, PRESETS = "params.yaml", "stages/presets.yaml"
METHODS = ("sft", "dpo", "ppo", "grpo")
"""Sections of params.yaml that `train` watches for its own kind alone."""
COPIES = frozenset(
    f"retrain@{name}" for name in read_yaml(ROOT / STUDY_PARAMS)["retrain"]["experiments"]
)
"""Studies that run stages in a copy of all files, with the whole of params.yaml."""
COMMANDS = ("doctor", "export", "replay", "rescore")
"""No stages; trace_code follows them, too, and the copies have all traces."""
READ_PRESETS = COPIES | {"gate"}
"""Studies that look up the presets of whichever rows there are."""
WATCHED_APART = frozenset({PRESETS, "stages/plan.py", "stages/trace_code.py"})
"""By each stage for itself; what the other two look at, rows and code, every stage depends on."""
SOURCES = [
    name
    for folder in ("stages", "studies")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if (name := path.relative_to(ROOT).as_posix()) not in WATCHED_APART
    if path.stat().st_size  # of no trace: the packages without a text
]
PARAMETERS = {
    name: key
    for key in parameters.leaves(read_yaml(ROOT / PARAMS))
    if (name := ".".join(key)) != "model.path"
}
"""But for the model: what `auto` makes of another one reaches a stage by way of data/prompts, which
`test_another_model_makes_stale_what_measures_it` looks at."""


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> DonePipeline:
    modules = plan_checks.load_entry_points()

    def change(content: dict[str, Any], _: dict[str, Any]) -> None:
        add_rows(content, presets.CONTENT, modules)

    return DonePipeline(tmp_path_factory.mktemp("done"), change)


@pytest.fixture(scope="session")
def readers(pipeline: DonePipeline) -> dict[str, Reader]:
    return {name: Reader.of_command(name, item) for name, item in pipeline.commands().items()}


@pytest.fixture(scope="session")
def dependencies(pipeline: DonePipeline) -> dict[str, Dependencies]:
    return pipeline.dependencies()


@pytest.fixture(scope="session")
def imports(readers: dict[str, Reader]) -> dict[str, set[str]]:
    """Stage -> the files that it imports."""
    modules = {name: item.module for name, item in readers.items()}
    own_modules = {name: name_own_module(item) for name, item in readers.items()}
    of_rows = {f"stages.{module}" for module in ENTRY_POINTS.values()}
    modules_of_all = {*modules.values(), *of_rows, *(f"stages.{name}" for name in COMMANDS)}
    command = [sys.executable, imported.__file__, *sorted(modules_of_all)]
    command += sorted({*own_modules.values()} - {""})
    completed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    files = {module: set(item) for module, item in json.loads(completed.stdout).items()}
    result = {name: set(files[module]) for name, module in modules.items()}
    # A labeller is traced with its entry point, of which the copies have all.
    labellers = {module for name, module in own_modules.items() if name.startswith("label@")} - {""}
    copied = [each for each in {*modules_of_all, *labellers} if each.startswith("stages.")]
    for name in COPIES:
        result[name] = result[name].union(*(files[module] for module in copied))
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


def test_a_file_makes_stale_who_imports_it(dependencies, imports) -> None:
    wrong: dict[str, set[str]] = {}
    for name in SOURCES:
        stale = {stage for stage, each in dependencies.items() if each.have(name)}
        is_runtime = name.startswith("stages/runtime/")  # which can change no output
        expected = set() if is_runtime else {stage for stage in imports if name in imports[stage]}
        wrong |= {name: stale ^ expected} if stale != expected else {}
    assert wrong == {}


@pytest.fixture(scope="session")
def mover(pipeline: DonePipeline, readers: dict[str, Reader]) -> parameters.Mover:
    files = {path: read_yaml(pipeline.path / path) for path in parameters.FILES}
    return parameters.Mover(readers.values(), read_yaml(pipeline.path / PARAMS), files)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_makes_stale_whom_it_can_move(
    pipeline, readers, dependencies, mover, name: str
) -> None:
    key, content = PARAMETERS[name], read_yaml(pipeline.path / PARAMS)
    changed = parameters.with_other(content, key)
    stale = {stage for stage, each in dependencies.items() if each.differ(PARAMS, content, changed)}
    expected = mover.list_moved(key) | COPIES
    # DVC has one list for all kinds of a stage, but for the section that only one kind has.
    listed = {item.split("@")[0] for item in expected if "@" in item}
    spared = {item for item in readers if item.split("@")[0] in listed and key[0] not in METHODS}
    assert expected <= stale <= expected | spared


@pytest.fixture(scope="session")
def editable() -> tuple[YAML, Any]:
    """presets.yaml with its anchors, so that an edit reaches the presets that inherit from it."""
    yaml = YAML()
    return yaml, yaml.load(ROOT / PRESETS)


@pytest.mark.parametrize("name", presets.READ)
def test_a_preset_makes_stale_its_rows_and_those_of_presets_that_inherit_from_it(
    readers, dependencies, editable, name: str
) -> None:
    yaml, content = editable
    key = next(iter(content[name]))
    value, edited = content[name][key], io.StringIO()
    content[name][key] = parameters.other(value)
    yaml.dump(content, edited)
    content[name][key] = value
    before, after = presets.READ, YAML(typ="safe").load(edited.getvalue())
    moved = {item for item in before if before[item] != after[item]}
    assert name in moved
    expected = {item for item, reader in readers.items() if reader.word("preset") in moved}
    stale = {stage for stage, each in dependencies.items() if each.differ(PRESETS, before, after)}
    assert stale == expected | READ_PRESETS


def edit_preset(folder: Path, name: str) -> None:
    def change(_: Any, mine: Any) -> None:
        key = next(iter(mine[name]))
        mine[name][key] = parameters.other(mine[name][key])

    change_params(folder, change)


def edit_batch_size(folder: Path) -> None:
    change_params(folder, lambda mine, _: mine["dpo"].update(batch_size=1000))


@pytest.mark.parametrize("name", ["stages/loops/rl.py", PARAMS, PRESETS])
def test_dvc_says_what_its_dependencies_say(pipeline, dependencies, name: str) -> None:
    file = pipeline.path / name
    edits = {PARAMS: lambda _: edit_batch_size(pipeline.path),
             PRESETS: lambda _: edit_preset(pipeline.path, "dpo_low_beta")}  # fmt: skip
    before = read_yaml(file) if file.suffix == ".yaml" else None
    with pipeline.changed(name, edits.get(name, comment)):
        after = read_yaml(file) if file.suffix == ".yaml" else None
        stale = set(pipeline.stale())
    assert stale == {
        stage
        for stage, each in dependencies.items()
        if each.have(name) or each.differ(name, before, after)
    }
    assert stale


def test_a_text_in_a_package_without_one_makes_stale_who_imports_from_it(pipeline, imports) -> None:
    name = "stages/algorithms/__init__.py"
    with pipeline.changed(name, comment):
        assert set(pipeline.stale()) == {stage for stage in imports if name in imports[stage]}


def test_the_graph_is_of_rows_and_of_no_parameter() -> None:
    words = {*re.findall(r"\$\{(\w+)", (ROOT / "dvc.yaml").read_text())}
    # The number of processes is that of GPUs in `meta`, which no result depends on.
    assert words <= {"item", "key", "num_processes", *TABLES, *GLOBAL_KEYS}


def test_another_model_makes_stale_what_measures_it(pipeline) -> None:
    def edit(path: Path) -> None:
        change_params(pipeline.path, lambda mine, _: mine["model"].update({"path": "models/a"}))

    with pipeline.changed("params.yaml", edit):
        assert "prepare_data" in pipeline.stale()


def test_what_a_kill_leaves_beside_outputs_is_no_change(pipeline) -> None:
    left = [pipeline.path / "data/rewards" / name for name in (".process.partial", ".process.old")]
    for folder in left:
        (folder / "0").mkdir(parents=True)
        (folder / "0/metrics.json").write_text("{}")
    try:
        assert set(pipeline.stale()) == set()
    finally:
        for folder in left:
            shutil.rmtree(folder)
