"""What is stale and why, and what an edit would rerun: a small pipeline in which nothing ran."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.repo import Repo
from toy_repo import TOYS, init_dvc

from flows import plan, reach
from flows.plan import StageNode, describe_changes, downstream, expand, make_plan, read_graph


def node(name: str, *upstream: str) -> StageNode:
    return StageNode(name=name, deps=(), outs=(), params=(), upstream=upstream, gpu=0)


NODES = (
    node("prepare"), node("sft", "prepare"), node("evaluate@sft", "sft"), node("grpo", "sft"),
    node("evaluate@grpo", "grpo"), node("compare", "evaluate@grpo", "evaluate@sft"),
)  # fmt: skip
GRAPH = {item.name: item for item in NODES}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"sft"}, {"evaluate@sft", "grpo", "evaluate@grpo", "compare"}),
        ({"grpo"}, {"evaluate@grpo", "compare"}),
        ({"compare"}, set()),
        (set(), set()),
    ],
)
def test_downstream_is_all_that_reads_a_stage_directly_or_not(names, expected) -> None:
    assert downstream(GRAPH, names) == expected


def test_ancestors_come_along_and_siblings_do_not() -> None:
    expected = {"prepare", "sft", "grpo", "evaluate@grpo"}
    assert plan.with_ancestors(GRAPH, {"evaluate@grpo"}) == expected


def test_a_table_is_all_its_rows_and_a_wrong_name_is_refused() -> None:
    assert expand(GRAPH, ["evaluate"]) == {"evaluate@sft", "evaluate@grpo"}
    assert expand(GRAPH, ["evaluate@sft", "grpo"]) == {"evaluate@sft", "grpo"}
    with pytest.raises(ValueError, match="gpro"):
        expand(GRAPH, ["gpro"])


def test_status_of_dvc_in_sentences() -> None:
    status = [
        {"changed deps": {"a.py": "modified", "params.yaml": {"grpo.steps": "modified"}}},
        {"changed outs": {"data/grpo": "deleted"}},
        "changed command",
    ]
    assert tuple(describe_changes(status)) == (
        "deps a.py modified",
        "deps grpo.steps modified",
        "outs data/grpo deleted",
        "changed command",
    )


@pytest.mark.parametrize(("gpu", "pool"), [(0, "cpu"), (1, "gpu"), (8, "gpu-8")])
def test_pool_of_a_stage_by_its_gpus(gpu: int, pool: str) -> None:
    stage = StageNode(name="s", deps=(), outs=(), params=(), upstream=(), gpu=gpu)
    assert stage.pool == pool


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
        "data/inputs.json": '{"data/raw/people.txt": "0"}',
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
    # of those on a GPU that depend on the seeds
    assert [graph[name].seeds for name in ORDER] == [(), (), (), (3, 5), (3, 5), (), ()]
    with pytest.raises(ValueError, match=r"dvc\.yaml"):
        make_plan(root / "stages")


def test_a_changed_stage_and_all_after_it_are_stale(root: Path) -> None:
    assert list_stale(root) == []
    (root / "params.yaml").write_text(PARAMS.replace("left: 1", "left: 2"))
    (root / "data/last").unlink()
    made = make_plan(root)
    assert {name: stage.changes for name, stage in made.items() if stage.changes} == {
        "second@left": ("deps left modified",),
        "gather": ("after second@left",),
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
    with pytest.raises(ValueError, match=r"absent\.py"):
        reach.describe(root, "absent.py")
