"""The graph of dvc.yaml; which change reruns which stage, tests/staleness shows."""

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from dvc.repo import Repo
from dvc.repo.reproduce import collect_stages, get_active_graph, plan_repro
from dvc.utils.hydra import apply_overrides
from toy_repo import init_dvc

from flows.plan import StageNode, downstream, read_graph
from stages import auto, plan_checks, tables
from stages.config import PRESET, PRESETS_PATH, Params, read_yaml
from stages.rows import ENTRY_POINTS, TABLES

ROOT = Path(__file__).resolve().parents[2]
CODE = "data/code/"
RECIPES = sorted(path.stem for path in (ROOT / "stages/recipes").glob("*.yaml"))
FIRST = {"plan", "trace_code"}
GATHERING = {"evaluate", "compare", "track"}
"""Stages that may depend on the folder around other stages' outputs: whatever is added to it, they
have to see."""


@pytest.fixture(scope="module")
def graph() -> dict[str, StageNode]:
    return read_graph(ROOT)


def read_recipe(recipe: str, folder: Path) -> dict[str, StageNode]:
    """The graph where a recipe is switched on."""
    init_dvc(folder)
    for file in ("params.yaml", "stages/presets.yaml", f"stages/recipes/{recipe}.yaml"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)
    text = (ROOT / "dvc.yaml").read_text()
    assert text.count("vars: []") == 1
    text = text.replace("vars: []", f"vars: [stages/recipes/{recipe}.yaml]")
    (folder / "dvc.yaml").write_text(text)
    return read_graph(folder)


@pytest.fixture(scope="module")
def configs() -> dict[str, type[Params]]:
    return plan_checks.load_entry_points()


BODIES: dict[str, dict[str, Any]] = {
    name: stage.get("do", stage) for name, stage in read_yaml(ROOT / "dvc.yaml")["stages"].items()
}
"""What dvc.yaml says of each stage, templates unresolved."""


def entry_point(body: Mapping[str, Any]) -> str:
    """The entry point of a command, perhaps with a template: `train_${item.train}`."""
    _, _, package, *words = body["cmd"].splitlines()[-1].split()
    return words[0] if package == "stages" else package.removeprefix("stages.")


def contains(folder: str, path: str) -> bool:
    return PurePosixPath(folder) in PurePosixPath(path).parents


@pytest.mark.parametrize("stage", BODIES)
def test_a_stage_has_the_code_of_its_entry_point_and_says_whether_it_needs_a_gpu(stage):
    body = BODIES[stage]
    traced = [dep for dep in body["deps"] if dep.startswith(CODE)]
    of_preset = [f"{CODE}presets/${{item.preset}}.json"] if stage == "train" else []
    assert traced == ([] if stage in FIRST else [f"{CODE}{entry_point(body)}.json", *of_preset])
    start, template, _ = entry_point(body).partition("${")
    named = {
        name for name in ENTRY_POINTS if name == start or (template and name.startswith(start))
    }
    files = [ROOT / f"stages/{ENTRY_POINTS.get(name, name)}.py" for name in named or {start}]
    # `gpu=True` in the entry point takes the slot; `meta` tells it to people and to queues
    uses = any("gpu=True" in path.read_text(encoding="utf-8") for path in files)
    assert uses == bool(body.get("meta", {}).get("gpu"))


@pytest.mark.parametrize("stage", BODIES)
def test_a_stage_uses_the_run_cache(stage):
    assert not {"always_changed", "frozen", "wdir"} & BODIES[stage].keys()
    for out in BODIES[stage].get("outs", []):
        path, options = next(iter(out.items())) if isinstance(out, dict) else (out, {})
        # A plan that is restored would delete nothing.
        expected = {"cache"} if path == "data/plan.json" else set()
        assert {"persist", "cache"} & options.keys() == expected, path


@pytest.mark.parametrize("recipe", ["", *RECIPES])
def test_a_dependency_on_data_is_the_output_of_a_stage_and_no_output_is_inside_another(
    recipe, graph, tmp_path
):
    nodes = read_recipe(recipe, tmp_path) if recipe else graph
    outs = sorted(out for node in nodes.values() for out in node.outs)
    assert len(outs) == len(set(outs))
    assert [(a, b) for a in outs for b in outs if contains(a, b)] == []
    for name, node in nodes.items():
        around = {dep for dep in node.deps if any(contains(dep, out) for out in outs)}
        # The outputs in the folder of a row, as of a teacher's policy, are all of its one stage.
        gathered = {dep for dep in around if dep.count("/") == 1}
        assert not gathered or name.split("@")[0] in GATHERING, (name, gathered)
        # The folder around a table's outputs: `plan` makes it where the table has no rows.
        known = {*outs, *around, *(f"data/{table}" for table in TABLES)}
        unknown = [dep for dep in node.deps if dep.startswith("data/") and dep not in known]
        inputs = (CODE, "data/own/", "data/raw")
        assert [dep for dep in unknown if not dep.startswith(inputs)] == [], name
        _, _, row = name.partition("@")
        assert [out for out in node.outs if row and row not in PurePosixPath(out).parts] == []
    evaluated = {name for name in nodes if name.startswith("evaluate@")}
    assert evaluated <= set(nodes["compare"].upstream)
    assert set(nodes) - {other for node in nodes.values() for other in node.upstream} == {"track"}


def test_every_stage_leaves_journals_that_tracking_alone_reads(graph):
    for name, node in graph.items():
        record = f"data/journals/{name.replace('@', '/')}"
        assert (record in node.outs) == (name not in FIRST | {"track"}), name
    # They hold the digest of a stage's inputs: what reads them runs again when code is edited.
    readers = {n.name for n in graph.values() if any(d.startswith("data/journals") for d in n.deps)}
    assert readers == {"track"}
    assert downstream(graph, {"track"}) == set()


def test_code_and_data_reach_every_stage_but_the_first(graph):
    every = set(graph) - FIRST
    assert downstream(graph, {"trace_code"}) == downstream(graph, {"plan"}) == every
    assert downstream(graph, {"prepare_data"}) == every - {"prepare_data"}


def test_plan_comes_before_anything_that_could_look_at_what_it_deletes():
    with Repo(str(ROOT)) as repo:
        active = get_active_graph(repo.index.graph)
        order = plan_repro(active, collect_stages(repo, [str(ROOT / "dvc.yaml")]))
    assert [stage.name for stage in order][:2] == ["plan", "trace_code"]


def test_an_applied_experiment_changes_the_lines_of_its_parameters_alone(tmp_path):
    path, changes = tmp_path / "params.yaml", ["grpo.num_steps=8", "seeds=[0,1,3]"]
    before = (ROOT / "params.yaml").read_text(encoding="utf-8").splitlines()
    shutil.copy(ROOT / "params.yaml", path)
    apply_overrides(path, changes)  # as `dvc exp run -S` does
    pairs = zip(before, path.read_text(encoding="utf-8").splitlines(), strict=True)
    assert [pair for pair in pairs if pair[0] != pair[1]] == [
        ("- 2", "- 3"), ("  num_steps: auto", "  num_steps: 8")
    ]  # fmt: skip


def test_every_key_is_read(configs):
    read = {field for config in configs.values() for field in config.model_fields} - {PRESET}
    assert read | {*TABLES, *tables.GLOBAL_KEYS} == set(read_yaml(ROOT / "params.yaml"))


def test_every_preset_is_of_exactly_one_kind(configs):
    presets = auto.resolve({"presets": read_yaml(ROOT / PRESETS_PATH)}, None)[0]["presets"]
    for name, preset in presets.items():  # kinds of environments share a `Config`
        fitting = {config for config in configs.values() if plan_checks.fits(config, preset)}
        assert len(fitting) == 1, name
