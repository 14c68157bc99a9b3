"""The folder around several outputs as a dependency: what comparing and tracking gather by."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.graph import read_graph
from flows.plan import make_plan

# model@left, model@right -> gather; a study of gather's in a dvc.yaml of its own
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
      mkdir -p data/gather && cat data/model/*/out.txt > data/gather/out.txt
      && echo gather 0 >> started.log
    deps: [data/model]
    outs: [data/gather]
"""
STUDIES = """\
stages:
  study:
    wdir: ..
    cmd: python work.py data/study data/gather/out.txt
    deps: [data/gather, work.py]
    outs: [data/study]
"""


@pytest.fixture
def root(checkout_with_flows: Path) -> Path:
    (checkout_with_flows / "dvc.yaml").write_text(DVC_YAML)
    (checkout_with_flows / "studies").mkdir()
    (checkout_with_flows / "studies/dvc.yaml").write_text(STUDIES)
    return checkout_with_flows


def test_who_reads_the_folder_comes_after_all_that_write_into_it(root: Path) -> None:
    graph = read_graph(root)
    assert graph["gather"].upstream == ("model@left", "model@right")
    assert graph["gather"].deps == ("data/model",)
    assert list(graph) == ["model@left", "model@right", "gather"]


def test_studies_are_neither_in_the_graph_nor_planned(root: Path) -> None:
    assert list(make_plan(root)) == ["model@left", "model@right", "gather"]


@pytest.mark.slow
@pytest.mark.parametrize("command", [["-m", "dvc", "repro"], ["-m", "flows.local", "-j", "2"]])
def test_only_the_part_that_changed_and_who_gathers_run_again(
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
    assert sorted(first[:2]) == ["left", "right"]
    assert first[2:] == ["gather"]
    set_params(left={"mode": "other"})
    assert run() == ["left", "gather"]
    assert "other" in (root / "data/gather/out.txt").read_text()
    assert run() == []
    set_params(left={"mode": "work"})
    assert run() == []
    assert not (root / "data/study").exists()
