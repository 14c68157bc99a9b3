"""What must run: the graph of dvc.yaml and what `dvc status` says of it.

Plain Python: it knows neither Prefect nor how a stage is executed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.graph import StageNode, read_graph, with_ancestors
from flows.process import child_environment

FIRST = ("plan", "trace_code")
"""Run before anything is planned: the one refuses wrong words, and on the other every stage
depends, so an edit of one file would make each look stale."""


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
