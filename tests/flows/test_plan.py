"""What is stale and why, and what an edit would rerun: a small pipeline in which nothing ran."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.repo import Repo
from toy_repo import TOYS, init_dvc

from flows import reach
from flows.plan import make_plan, read_graph

READ = {
    "first": ["stages/first.py", "stages/params.py"],
    "second": ["stages/second.py", "stages/params.py"],
}
TRACE = f"""\
import json, os, pathlib, shutil, sys
folder = pathlib.Path("data/code")
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
for entry, files in {READ!r}.items():
    read = {{file: pathlib.Path(file).read_text() for file in files}}
    (folder / (entry + ".json")).write_text(json.dumps(read))
pathlib.Path("who").write_text(sys.executable)
"""
PARAMS = "seed: 1\nseeds: [3, 5]\nleft: 1\nright: 1\n"
ORDER = ["plan", "trace_code", "first", "second@left", "second@right", "gather", "last"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The pipeline, of which DVC takes hand-made outputs for done."""
    init_dvc(tmp_path)
    for folder in ("stages", "studies", "data/raw", "data/second"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("first", "second", "params", "unread"):
        (tmp_path / f"stages/{name}.py").write_text(f"# {name}\n")
    files = {
        "trace.py": TRACE, "dvc.yaml": (TOYS / "plan.yaml").read_text(), "params.yaml": PARAMS,
        "studies/dvc.yaml": (TOYS / "studies.yaml").read_text(), "data/raw/people.txt": "",
        "data/inputs.json": '{"data/raw/people.txt": "0"}', "data/raw/words.txt": "",
        "data/raw.json": '{"data/raw/words.txt": "0"}',
    }  # fmt: skip
    outs = ("first", "second/left", "second/right", "gather", "last", "study")
    files |= {f"data/{out}": out for out in outs}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    subprocess.run([sys.executable, "trace.py"], cwd=tmp_path, check=True)
    with contextlib.chdir(tmp_path), Repo() as repo:
        repo.commit(force=True)
    return tmp_path


def list_stale(root: Path) -> list[str]:
    return [name for name, stage in make_plan(root).items() if stage.changes]


def test_the_graph_has_the_pipelines_stages_upstream_first(root: Path) -> None:
    graph = read_graph(root)
    assert list(graph) == ORDER
    assert graph["gather"].deps == ("data/second",)
    assert graph["gather"].upstream == ("second@left", "second@right")
    assert graph["second@left"].params == ("left", "seeds")
    assert [graph[name].gpu for name in ORDER] == [0, 0, 1, 8, 8, 0, 0]
    assert {graph[name].pool for name in ORDER} == {"cpu", "gpu", "gpu-8"}
    # of those on a GPU that depend on the seeds
    assert [graph[name].seeds for name in ORDER] == [(), (), (), (3, 5), (3, 5), (), ()]
    with pytest.raises(ValueError, match=r"dvc\.yaml"):
        make_plan(root / "stages")
    with pytest.raises(ValueError, match="secnd"):
        make_plan(root, ["secnd"])
    assert list(make_plan(root, ["second"])) == [*ORDER[:3], *SECOND]


def test_a_changed_stage_and_all_after_it_are_stale(root: Path) -> None:
    assert list_stale(root) == []
    (root / "params.yaml").write_text(PARAMS.replace("left: 1", "left: 2"))
    (root / "data/last").unlink()
    graph = (root / "dvc.yaml").read_text()
    (root / "dvc.yaml").write_text(
        graph.replace(
            "cmd: exit 1\n    deps: [data/second]", "cmd: exit 2\n    deps: [data/second]"
        )
    )
    made = make_plan(root)
    assert {name: stage.changes for name, stage in made.items() if stage.changes} == {
        "second@left": ("deps left modified",),
        "gather": ("changed command",),
        "last": ("outs data/last deleted",),
    }
    assert list(make_plan(root, ["second@right"])) == [*ORDER[:3], "second@right"]


def test_an_edited_source_is_traced_first_by_our_python(root: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # an environment that is not activated
    (root / "stages/unread.py").write_text("# edited\n")
    assert list_stale(root) == []
    (root / "stages/second.py").write_text("# edited\n")
    assert list_stale(root) == ["second@left", "second@right", "gather", "last"]
    traced = json.loads((root / "data/code/second.json").read_text())
    assert traced["stages/second.py"] == "# edited\n"
    assert Path((root / "who").read_text()).parent == Path(sys.executable).parent


SECOND, LATER = ["second@left", "second@right"], ["gather", "last"]


@pytest.mark.parametrize(
    ("file", "direct", "later"),
    [
        ("stages/first.py", ["first"], [*SECOND, *LATER]),
        ("stages/second.py", SECOND, LATER),
        ("stages/params.py", ["first", *SECOND], LATER),
        ("stages/unread.py", [], []),
        ("data/raw/people.txt", ["first"], [*SECOND, *LATER]),
        ("data/second/left", ["gather"], ["last"]),
        ("data/inputs.json", ["first"], [*SECOND, *LATER]),
        ("data/raw/words.txt", ["last"], []),  # an environment looks it up
        ("trace.py", [], []),
    ],
)
def test_an_edit_reaches(root: Path, monkeypatch, file, direct, later) -> None:
    monkeypatch.setattr(reach, "run_dvc", lambda *_: "")  # the traces are new
    lines = reach.describe(root, file).splitlines()
    after = [f"  {name} (downstream)" for name in later]
    assert lines[1:] == [*(f"  {name}" for name in direct), *after]
    assert str(len(direct)) in lines[0] or not direct


def test_parameters_are_listed_with_who_reads_them(root: Path) -> None:
    assert reach.describe(root, "params.yaml").splitlines() == [
        "left: second@left",
        "right: second@right",
        "seed: first",
        "seeds: second@left second@right last",
    ]
    for wrong in (r"absent.py", "stages", "data/raw"):
        with pytest.raises(ValueError, match=wrong):
            reach.describe(root, wrong)
