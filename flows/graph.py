"""The pipeline's graph as DVC itself reads it from dvc.yaml."""

from dataclasses import dataclass
from pathlib import Path

import networkx


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
    """`meta.gpu`, a hint for people and queues; 0 when absent. It invalidates nothing."""


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
