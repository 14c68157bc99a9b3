"""A change makes stale exactly the stages that can read it.

Who can read a file is told by Python's own imports (`imported`), who can read a parameter by moving
it (`parameters`), who can read a preset by the rows that name it. DVC says what is stale, of a copy
of the repository in which everything was done (`pipeline`).

    MUTATION_SHARE=1 pytest -n 0 -s -m mutation tests/staleness      all of them
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import presets
import pytest
from pipeline_copy import ROOT, change_params
from staleness import imported, parameters, rows
from staleness.parameters import Reader
from staleness.pipeline import DonePipeline

from stages import plan_checks, trace_code
from stages.config import read_yaml

SHARE = 20
METHODS = ("sft", "dpo", "ppo", "grpo")
"""Sections of params.yaml that `train` watches for its own kind alone."""
Choose = Callable[[Iterable[str], int], list[str]]
MODULES = plan_checks.load_entry_points()
COPIES = frozenset({"equal_tokens", "rounding", "staleness"})
"""Studies that run every other stage in a copy of all files, with the whole of params.yaml."""
READ_PRESETS = COPIES | {"gate", "label_noise"}
"""Studies that look up the presets of whichever rows there are."""
WATCHED_APART = frozenset({"stages/presets.yaml", "stages/plan.py", "stages/trace_code.py"})
"""By each stage for itself; what the other two look at, rows and code, every stage depends on."""
NO_STAGE = frozenset({
    "stages/library.py", "stages/__main__.py", "stages/studies/__main__.py",
    "stages/planning/timed_passes.py",
    "stages/rewards/own/__init__.py", "stages/rewards/own/brevity.py", "stages/rewards/own/coin.py",
    *(f"stages/environments/{name}.py" for name in (
        "arithmetic", "lookup_table", "problem_draws", "tool_functions", "own/__init__",
        "own/calculator", "own/guess_number", "own/lookup", "own/problem_file",
    )),
})  # fmt: skip
"""What no stage imports: the API for other programs, what looks up the stage to run, a program of
the doctor's, and rewards and environments of one's own that no row names, with what only these
import."""
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "stages").rglob("*.py")
    if path.relative_to(ROOT).as_posix() not in WATCHED_APART
)
RUNTIME = [name for name in SOURCES if name.startswith("stages/runtime/")]
PARAMETERS = {
    name: key
    for key in parameters.leaves(read_yaml(ROOT / "params.yaml"))
    if (name := ".".join(key)) != "model.path"
}
"""But for the model: what `auto` makes of another one reaches a stage by way of data/prompts, which
`test_another_model_makes_stale_what_measures_it` looks at."""


@pytest.fixture(scope="module")
def picked(chosen: Choose) -> list[str]:
    """Presets."""
    return chosen(presets.READ, SHARE)


@pytest.fixture(scope="module")
def pipeline(picked: list[str], tmp_path_factory: pytest.TempPathFactory) -> DonePipeline:
    def change(content: dict[str, Any], _: dict[str, Any]) -> None:
        rows.add(content, {name: presets.CONTENT[name] for name in picked}, MODULES)

    return DonePipeline(tmp_path_factory.mktemp("done"), change)


@pytest.fixture(scope="module")
def readers(pipeline: DonePipeline) -> dict[str, Reader]:
    return {name: Reader.of_command(name, item) for name, item in pipeline.commands().items()}


@pytest.fixture(scope="module")
def imports(readers: dict[str, Reader]) -> dict[str, set[str]]:
    """Stage -> the files that it imports."""
    modules = {name: item.module for name, item in readers.items()}
    own_modules = {name: name_own_module(item) for name, item in readers.items()}
    wanted = {*modules.values(), *filter(None, own_modules.values()), "stages.reward_model"}
    command = [sys.executable, imported.__file__, *sorted(wanted)]
    completed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    files = {module: set(item) for module, item in json.loads(completed.stdout).items()}
    result = {name: set(files[module]) for name, module in modules.items()}
    result["label_noise"] |= files["stages.reward_model"]  # it runs that stage in a copy
    for name in COPIES:
        result[name] = set(SOURCES) - NO_STAGE
    for name, module in own_modules.items():
        result[name] |= files[module] if module else set()
    return result


def name_own_module(reader: Reader) -> str:
    """The module of one's own that a stage's row names; empty: none."""
    folder, _, word = (reader.word("on") or "").partition("/")
    package = "environments" if reader.name.startswith("environment@") else "rewards"
    return f"stages.{package}.own.{word}" if folder == "own" else ""


def comment(path: Path) -> None:
    path.write_text(f"{path.read_text()}\n# A comment.\n")


def check_parameter(pipeline: DonePipeline, readers: dict[str, Reader], name: str) -> None:
    key, content = PARAMETERS[name], read_yaml(pipeline.path / "params.yaml")

    def edit(path: Path) -> None:
        changed = parameters.with_other(content, key)
        change_params(pipeline.path, lambda own, _: own.update({key[0]: changed[key[0]]}))

    files = {path: read_yaml(pipeline.path / path) for path in parameters.FILES}
    moved = {item for item in readers.values() if parameters.can_move(item, key, content, files)}
    expected = {item.name for item in moved} | COPIES
    # It runs the stage of its reward in a copy.
    if "reward@preference" in expected:
        expected.add("label_noise")
    # DVC has one list for all kinds of a stage, but for the section that only one kind has.
    listed = {item.split("@")[0] for item in expected if "@" in item}
    spared = {item for item in readers if item.split("@")[0] in listed and key[0] not in METHODS}
    if key[-1] == "max_new_tokens":
        # Which of them bounds the completions is read later: of what the row rescores.
        spared |= {item for item in readers if item.startswith("rescore@")}
    with pipeline.changed("params.yaml", edit):
        stale = set(pipeline.stale())
    assert expected <= stale <= expected | spared, name


def check_preset(pipeline: DonePipeline, readers: dict[str, Reader], name: str) -> None:
    file = pipeline.path / "stages/presets.yaml"
    before = read_yaml(file)
    key = next(iter(before[name]))

    def edit(_: Path) -> None:
        def change(_: Any, own: Any) -> None:
            own[name][key] = parameters.other(before[name][key])

        change_params(pipeline.path, change)

    with pipeline.changed("stages/presets.yaml", edit):
        after = read_yaml(file)
        moved = {item for item in before if before[item] != after[item]}
        assert name in moved
        expected = {item for item, reader in readers.items() if reader.word("preset") in moved}
        assert set(pipeline.stale()) == expected | READ_PRESETS, name


@pytest.mark.slow
def test_a_sample_of_parameters_and_presets(
    pipeline: DonePipeline, readers: dict[str, Reader], chosen: Choose, picked: list[str]
) -> None:
    for name in chosen(PARAMETERS, len(PARAMETERS)):
        check_parameter(pipeline, readers, name)
    check_preset(pipeline, readers, picked[0])


def test_another_model_makes_stale_what_measures_it(pipeline: DonePipeline) -> None:
    def edit(path: Path) -> None:
        change_params(pipeline.path, lambda own, _: own["model"].update({"path": "models/other"}))

    with pipeline.changed("params.yaml", edit):
        assert "prepare_data" in pipeline.stale()


def test_a_change_of_the_runtime_makes_none_stale(pipeline: DonePipeline, chosen: Choose) -> None:
    for name in chosen(RUNTIME, len(RUNTIME)):
        with pipeline.changed(name, comment):
            assert set(pipeline.stale()) == set(), name


def test_a_judge_may_read_what_is_sampled_so_labels_follow_each_limit(
    pipeline: DonePipeline, readers: dict[str, Reader]
) -> None:
    check_parameter(pipeline, readers, "sampling.test.max_new_tokens")


def test_every_file_with_content_is_read_by_a_stage_but_for_those_named_above() -> None:
    """So that the part of the files that is changed below finds no file that was forgotten."""
    graph = trace_code.build_import_graph(ROOT)
    read = {
        file
        for entry in trace_code.list_entries(ROOT)
        if not entry.startswith(trace_code.OWN_PACKAGES)
        for file in trace_code.list_import_closure(graph, entry, ROOT)
    }
    unread = {name for name in SOURCES if (ROOT / name).stat().st_size} - read - {*RUNTIME}
    assert unread == {name for name in NO_STAGE if (ROOT / name).stat().st_size}


@pytest.mark.mutation
def test_a_file_makes_stale_who_imports_it(
    pipeline: DonePipeline, imports: dict[str, set[str]], chosen: Choose
) -> None:
    for name in chosen(SOURCES, SHARE):
        readers = set() if name in RUNTIME else {item for item in imports if name in imports[item]}
        with pipeline.changed(name, comment):
            assert set(pipeline.stale()) == readers, name


@pytest.mark.mutation
def test_a_parameter_makes_stale_whom_it_can_move(
    pipeline: DonePipeline, readers: dict[str, Reader], chosen: Choose
) -> None:
    for name in chosen(PARAMETERS, SHARE):
        check_parameter(pipeline, readers, name)


@pytest.mark.mutation
def test_a_preset_makes_stale_its_rows_and_those_of_presets_that_inherit_from_it(
    pipeline: DonePipeline, readers: dict[str, Reader], picked: list[str]
) -> None:
    for name in picked:
        check_preset(pipeline, readers, name)
