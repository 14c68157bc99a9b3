"""What must run: the graph of dvc.yaml, as DVC reads it, and what `dvc status` says of it.

Plain Python: it knows neither Prefect nor how a stage is executed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import networkx

from flows.lock import mend
from flows.process import child_environment

FIRST = ("plan", "trace_code")
"""Run before anything is planned: the one refuses wrong words, and on the other every stage
depends, so an edit of one file would make each look stale."""


@dataclass(frozen=True, kw_only=True)
class StageNode:
    """One DVC stage: `compare`, or `train@grpo` for a row of a table."""

    name: str
    deps: tuple[str, ...]
    """Paths of its dependencies, relative to the repository."""
    outs: tuple[str, ...]
    """Paths of its outputs, relative to the repository."""
    params: tuple[str, ...]
    """The keys of params.yaml and presets.yaml it reads, as dvc.yaml lists them."""
    upstream: tuple[str, ...]
    """Stages whose outputs it reads, sorted."""
    gpu: int
    """`meta.gpu`, how many it needs; 0 when absent. It invalidates nothing."""

    @property
    def pool(self) -> str:
        """The work pool whose agents can run it: cpu, gpu for one, gpu-8 for eight."""
        return {0: "cpu", 1: "gpu"}.get(self.gpu, f"gpu-{self.gpu}")


def read_graph(root: Path) -> dict[str, StageNode]:
    """Every stage of `<root>/dvc.yaml`, in an order in which they can run.

    The studies, in a dvc.yaml of their own, are not among them.
    """
    from dvc.dependency import ParamsDependency
    from dvc.repo import Repo
    from dvc.stage import PipelineStage

    path = root.resolve() / "dvc.yaml"
    with Repo(str(root)) as repo:
        graph = repo.index.graph
        # DVC's edges point from a stage to what it needs; reversed, sources come first.
        ordered = networkx.lexicographical_topological_sort(
            graph.reverse(copy=True), key=lambda stage: str(stage.addressing)
        )
        nodes: dict[str, StageNode] = {}
        for stage in ordered:
            if not isinstance(stage, PipelineStage) or Path(stage.path) != path:
                continue
            name = str(stage.name)  # .addressing would depend on the working directory
            parameters = [dep for dep in stage.deps if isinstance(dep, ParamsDependency)]
            files = [dep for dep in stage.deps if not isinstance(dep, ParamsDependency)]
            nodes[name] = StageNode(
                name=name,
                deps=tuple(relative(dep.fs_path, root) for dep in files),
                outs=tuple(relative(out.fs_path, root) for out in stage.outs),
                params=tuple(str(key) for dep in parameters for key in dep.params),
                upstream=tuple(sorted(str(other.name) for other in graph.successors(stage))),
                gpu=int((stage.meta or {}).get("gpu", 0)),
            )
    return nodes


def relative(path: str, root: Path) -> str:
    """`path` relative to `root`, with forward slashes."""
    return Path(path).relative_to(root.resolve()).as_posix()


def downstream(graph: dict[str, StageNode], names: set[str]) -> set[str]:
    """Every stage that reads, directly or not, an output of one of `names`; without `names`."""
    reached = set(names)
    for node in graph.values():  # sources first, so one pass is enough
        if reached.intersection(node.upstream):
            reached.add(node.name)
    return reached - names


def with_ancestors(graph: dict[str, StageNode], names: set[str]) -> set[str]:
    """`names` and every stage that one of them needs, directly or not."""
    needed = set(names)
    for node in reversed(graph.values()):
        if node.name in needed:
            needed.update(node.upstream)
    return needed


@dataclass(frozen=True, kw_only=True)
class PlannedStage:
    """One stage and why it has to be looked at."""

    node: StageNode
    changes: tuple[str, ...]
    """What differs from dvc.lock, as `dvc status` words it; empty when nothing does."""
    stale_upstream: tuple[str, ...]
    """Stages it reads from that may write something new in this run."""

    @property
    def stale(self) -> bool:
        """Whether DVC must be asked; otherwise the stage is known to be up to date."""
        return bool(self.changes or self.stale_upstream)


def make_plan(root: Path, targets: list[str] | None = None) -> dict[str, PlannedStage]:
    """The stages to consider, by name, in an order in which they can run.

    Args:
        root: the repository; it holds dvc.yaml.
        targets: stages (`compare`, `train@grpo`) or all rows of a table (`evaluate`); their
            ancestors come along, as in `dvc repro`. None: all.

    Raises:
        ValueError: if there is no dvc.yaml or a target is not in it, or the tables are wrong.
    """
    if not (root / "dvc.yaml").is_file():
        raise ValueError(f"no dvc.yaml in {root}: run this from the root of the repository")
    mend(root)
    graph = read_graph(root)
    names = set(graph) if not targets else with_ancestors(graph, expand(graph, targets))
    changes = read_status(root)
    if stale := [name for name in FIRST if name in changes]:
        refresh(root, stale)
        changes = read_status(root)
    planned: dict[str, PlannedStage] = {}
    for name, node in graph.items():
        if name not in names:
            continue
        stale = tuple(other for other in node.upstream if planned[other].stale)
        planned[name] = PlannedStage(node=node, changes=changes.get(name, ()), stale_upstream=stale)
    return planned


def refresh(root: Path, names: Sequence[str]) -> None:
    """Run stages that take a second or a few.

    Raises:
        ValueError: one failed.
    """
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "-q", "-s", *names]
    environment = child_environment(Path(sys.executable))
    result = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise ValueError(f"`dvc repro -s {' '.join(names)}` failed:\n{result.stderr.strip()}")


def expand(graph: dict[str, StageNode], targets: list[str]) -> set[str]:
    """Names of stages, with each group replaced by its elements."""
    names: set[str] = set()
    for target in targets:
        found = {name for name in graph if name == target or name.split("@")[0] == target}
        if not found:
            raise ValueError(
                f"dvc.yaml has no stage '{target}'. Name one of these: {', '.join(graph)}"
            )
        names |= found
    return names


def read_status(root: Path) -> dict[str, tuple[str, ...]]:
    """For each stage that differs from dvc.lock, one short sentence a difference.

    Without the studies, which have a dvc.yaml of their own and run when asked for.
    """
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "status", "--json", "dvc.yaml"]
    result = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "DVC_NO_ANALYTICS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(f"`dvc status` failed in {root}:\n{result.stderr.strip()}")
    return {name: describe_changes(items) for name, items in json.loads(result.stdout).items()}


def describe_changes(items: list[str | dict[str, object]]) -> tuple[str, ...]:
    """`[{"changed deps": {"a": "modified"}}, "changed command"]` as sentences."""
    sentences: list[str] = []
    for item in items:
        if isinstance(item, str):
            sentences.append(item)
            continue
        for kind, entries in item.items():
            assert isinstance(entries, dict), f"dvc status wrote {kind}: {entries!r}"
            for path, change in entries.items():
                # for params.yaml one level deeper: each key and how it differs
                details = change.items() if isinstance(change, dict) else [(path, change)]
                sentences.extend(f"{kind.split()[-1]} {key} {how}" for key, how in details)
    return tuple(sentences)
