"""A folder inside another stage's output as a dependency: what ensembles of models rely on."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.graph import read_graph

# model@left, model@right -> gather -> use@left, use@right
DVC_YAML = """\
stages:
  model:
    foreach: [left, right]
    do:
      cmd: python work.py data/model/${item} raw.txt
      deps: [raw.txt, work.py]
      params: ["${item}"]
      outs: ["data/model/${item}"]
  gather:
    cmd: >-
      mkdir -p data/gather && cp -r data/model/left data/model/right data/gather
      && echo gather 0 >> started.log
    deps: [data/model/left, data/model/right]
    outs: [data/gather]
  use:
    foreach: [left, right]
    do:
      cmd: python work.py data/use/${item} data/gather/${item}/out.txt
      deps: [work.py, "data/gather/${item}"]
      outs: ["data/use/${item}"]
"""


@pytest.fixture
def root(checkout_with_flows: Path) -> Path:
    (checkout_with_flows / "dvc.yaml").write_text(DVC_YAML)
    return checkout_with_flows


def test_the_stage_that_writes_the_folder_around_it_is_upstream(root: Path) -> None:
    graph = read_graph(root)
    assert graph["use@left"].upstream == ("gather",)
    assert "data/gather/left" in graph["use@left"].deps
    names = list(graph)
    assert names.index("model@right") < names.index("gather") < names.index("use@left")


@pytest.mark.parametrize("command", [["-m", "dvc", "repro"], ["-m", "flows.local", "-j", "2"]])
def test_only_who_reads_the_part_that_changed_runs_again(
    root: Path,
    set_params: Callable[..., None],
    started: Callable[[], list[str]],
    command: list[str],
) -> None:
    def run() -> list[str]:
        before = len(started())
        subprocess.run([sys.executable, *command], cwd=root, check=True, capture_output=True)
        return started()[before:]

    first = run()
    assert sorted(first) == ["gather", "left", "left", "right", "right"]
    assert first[2] == "gather"
    set_params(left={"mode": "other"})
    assert run() == ["left", "gather", "left"]
    assert "other" in (root / "data/use/left/out.txt").read_text()
    assert run() == []
    set_params(left={"mode": "work"})
    assert run() == []
