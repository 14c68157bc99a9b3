"""Plan of a run: DVC's graph of dvc.yaml, and the changes that `dvc status` lists."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx
from ruamel.yaml import YAML

from flows.dvc_internals import mend
from flows.process import DVC, child_environment

FIRST = ("plan", "trace_code")
"""Stages that run before the others are planned: `plan` refuses wrong tables; every stage depends
on `trace_code`, so that all would look stale after an edit of one file."""

SEEDS = "seeds"


@dataclass(frozen=True, kw_only=True)
class StageNode:
    """Stage of dvc.yaml: `compare`, or `train@grpo` for a row of a table."""

    name: str
    deps: tuple[str, ...]
    """Paths of its dependencies, relative to the repository."""
    outs: tuple[str, ...]
    """Paths of its outputs, relative to the repository."""
    params: tuple[str, ...]
    """Keys of params.yaml and presets.yaml that it depends on, as in dvc.yaml."""
    upstream: tuple[str, ...]
    """Stages whose outputs it reads, sorted."""
    gpu: int
    """Number of GPUs it needs, `meta.gpu`; 0 if absent. It is not a dependency."""
    seeds: tuple[int, ...] = ()
    """Values of the parameter `seeds`, if it computes on a GPU and depends on them."""
    changes: tuple[str, ...] = ()
    """Reasons to run it: the differences from dvc.lock, or the upstream stages whose outputs may
    change. Empty: the stage is up to date."""

    @property
    def pool(self) -> str:
        """Prefect work pool whose agents can run it: cpu, gpu for one GPU, gpu-8 for eight."""
        return {0: "cpu", 1: "gpu"}.get(self.gpu, f"gpu-{self.gpu}")


def read_graph(root: Path) -> dict[str, StageNode]:
    """Stages of `<root>/dvc.yaml` by name, upstream stages first.

    Studies, whose dvc.yaml is in another folder, are not included.
    """
    from dvc.dependency import ParamsDependency
    from dvc.repo import Repo
    from dvc.stage import PipelineStage

    root = root.resolve()
    nodes: dict[str, StageNode] = {}
    with Repo(str(root)) as repo:
        graph = repo.index.graph
        seeds = read_seeds(root)  # from a file that DVC has parsed by now
        # DVC's edges point from a stage to those that it needs.
        ordered = networkx.lexicographical_topological_sort(
            graph.reverse(copy=True), key=lambda stage: str(stage.addressing)
        )
        for stage in ordered:
            if not isinstance(stage, PipelineStage) or Path(stage.path) != root / "dvc.yaml":
                continue
            gpu = int((stage.meta or {}).get("gpu", 0))
            name = str(stage.name)  # `addressing` would depend on the working directory
            parameters = [dep for dep in stage.deps if isinstance(dep, ParamsDependency)]
            files = [dep for dep in stage.deps if not isinstance(dep, ParamsDependency)]
            nodes[name] = StageNode(
                name=name,
                deps=tuple(Path(dep.fs_path).relative_to(root).as_posix() for dep in files),
                outs=tuple(Path(out.fs_path).relative_to(root).as_posix() for out in stage.outs),
                params=tuple(str(key) for dep in parameters for key in dep.params),
                upstream=tuple(sorted(str(node.name) for node in graph.successors(stage))),
                gpu=gpu,
                seeds=seeds if gpu and any(SEEDS in dep.params for dep in parameters) else (),
            )
    return nodes


def read_seeds(root: Path) -> tuple[int, ...]:
    """List `seeds` of params.yaml; empty if there is none, which `plan` refuses."""
    path = root / "params.yaml"
    seeds = (YAML(typ="safe").load(path) or {}).get(SEEDS) if path.is_file() else None
    return tuple(seeds) if isinstance(seeds, list) else ()


def downstream(graph: dict[str, StageNode], names: set[str]) -> set[str]:
    """Stages, without `names`, that read an output of one of `names`, directly or not."""
    needs = link_stages(graph)
    return set[str]().union(*(networkx.ancestors(needs, name) for name in names)) - names


def with_ancestors(graph: dict[str, StageNode], names: set[str]) -> set[str]:
    """`names`, and all stages that they need, directly or not."""
    needs = link_stages(graph)
    return names.union(*(networkx.descendants(needs, name) for name in names))


def link_stages(graph: dict[str, StageNode]) -> Any:
    """Graph of the stages, with an edge from each to those that it needs."""
    return networkx.DiGraph({name: list(node.upstream) for name, node in graph.items()})


def make_plan(root: Path, targets: list[str] | None = None) -> dict[str, StageNode]:
    """Stages of a run by name, upstream stages first, each with its `changes`.

    Args:
        root: the repository, with dvc.yaml.
        targets: stages (`compare`, `train@grpo`) or tables (`evaluate`: all its rows). The stages
            that they need are included, as in `dvc repro`. None: all.

    Raises:
        ValueError: there is no dvc.yaml, a target is not in it, or `plan` refuses the tables.
    """
    if not (root / "dvc.yaml").is_file():
        raise ValueError(f"no dvc.yaml in {root}: run this from the root of the repository")
    mend(root)
    graph = read_graph(root)
    names = with_ancestors(graph, expand(graph, targets)) if targets else set(graph)
    changes = read_status(root)
    if outdated := [name for name in FIRST if name in changes]:
        run_dvc(root, "repro", "-q", "-s", *outdated)
        changes = read_status(root)
    plan: dict[str, StageNode] = {}
    for name, node in graph.items():
        if name in names:
            stale = [upstream for upstream in node.upstream if plan[upstream].changes]
            after = (f"after {', '.join(stale[:3])}",) if stale else ()
            plan[name] = replace(node, changes=changes.get(name) or after)
    return plan


def expand(graph: dict[str, StageNode], targets: list[str]) -> set[str]:
    """Names of stages, with each table replaced by the stages of its rows."""
    names: set[str] = set()
    for target in targets:
        matches = {name for name in graph if target in (name, name.split("@")[0])}
        if not matches:
            raise ValueError(
                f"dvc.yaml has no stage '{target}'. Name one of these: {', '.join(graph)}"
            )
        names |= matches
    return names


def read_status(root: Path) -> dict[str, tuple[str, ...]]:
    """Differences from dvc.lock of each stage that has any, one short sentence each.

    Studies, which have another dvc.yaml, are not included.
    """
    status = json.loads(run_dvc(root, "status", "--json", "dvc.yaml"))
    return {name: tuple(describe_changes(items)) for name, items in status.items()}


def describe_changes(items: list[str | dict[str, Any]]) -> Iterator[str]:
    """Sentences on `[{"changed deps": {"a": "modified"}}, "changed command"]`."""
    for item in items:
        if isinstance(item, str):
            yield item
            continue
        for kind, entries in item.items():
            for path, change in entries.items():
                # For params.yaml one level deeper: each key and its difference.
                details = change if isinstance(change, dict) else {path: change}
                yield from (f"{kind.split()[-1]} {key} {how}" for key, how in details.items())


def run_dvc(root: Path, *words: str) -> str:
    """Standard output of a DVC command that takes seconds.

    Raises:
        ValueError: it failed.
    """
    result = subprocess.run(
        [*DVC, *words],
        cwd=root,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise ValueError(f"`dvc {' '.join(words)}` failed in {root}:\n{result.stderr.strip()}")
    return result.stdout
