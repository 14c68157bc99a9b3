"""Which stages an edit would rerun, on a small pipeline with a trace."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flows import plan, reach

DVC_YAML = """\
stages:
  trace_code:
    cmd: python trace.py
    deps: [trace.py, stages]
    outs: [data/code]
  first:
    cmd: echo first > data/first
    deps: [data/code/first.json]
    params: [seed]
    outs: [data/first]
  second:
    foreach: [left, right]
    do:
      cmd: echo ${item} > data/second-${item}
      deps: [data/code/second.json, data/first, raw.txt]
      outs: ["data/second-${item}"]
"""
READ = {
    "first": ["stages/first.py", "stages/params.py"],
    "second": ["stages/second.py", "stages/params.py"],
}
TRACE = f"""\
import json, pathlib
folder = pathlib.Path("data/code")
folder.mkdir(parents=True, exist_ok=True)
for entry, files in {READ!r}.items():
    read = {{file: pathlib.Path(file).read_text() for file in files}}
    (folder / (entry + ".json")).unlink(missing_ok=True)
    (folder / (entry + ".json")).write_text(json.dumps(read))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "stages").mkdir()
    for name in ("first", "second", "params", "unread"):
        (tmp_path / f"stages/{name}.py").write_text(f"# {name}\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "raw.txt").touch()
    (tmp_path / "trace.py").write_text(TRACE)
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    (tmp_path / "params.yaml").write_text("seed: 1\n")
    for command in (["init", "--no-scm", "-q"], ["repro", "-q"]):
        subprocess.run([sys.executable, "-m", "dvc", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_a_source_file_reaches_what_reads_it_and_what_is_downstream(root: Path) -> None:
    said = reach.describe(root, "stages/first.py").splitlines()
    assert said[0] == "stages/first.py: 1 directly, 2 downstream if their inputs change"
    assert said[1:] == ["  first", "  second@left (downstream)", "  second@right (downstream)"]
    said = reach.describe(root, "stages/params.py").splitlines()
    assert said[1:] == ["  first", "  second@left", "  second@right"]
    assert "no stage's result" in reach.describe(root, "stages/unread.py")


def test_an_input_file_and_the_parameters(root: Path) -> None:
    said = reach.describe(root, "raw.txt").splitlines()
    assert said[1:] == ["  second@left", "  second@right"]
    assert reach.describe(root, "params.yaml") == "seed: first"
    with pytest.raises(ValueError, match=r"there is no absent\.py"):
        reach.describe(root, "absent.py")


def test_the_trace_is_made_by_the_python_that_asks(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # an environment that is not activated
    (root / "trace.py").write_text(TRACE + "import sys\nopen('who', 'w').write(sys.executable)\n")
    plan.run_dvc(root, "repro", "-q", "-s", "trace_code")
    assert Path((root / "who").read_text()).parent == Path(sys.executable).parent


@pytest.mark.slow
def test_an_edit_makes_the_plan_look_at_what_reads_it_only(root: Path) -> None:
    assert [name for name, stage in plan.make_plan(root).items() if stage.changes] == []
    (root / "stages/unread.py").write_text("# edited\n")
    assert [name for name, stage in plan.make_plan(root).items() if stage.changes] == []
    (root / "stages/second.py").write_text("# edited\n")
    stale = [name for name, stage in plan.make_plan(root).items() if stage.changes]
    assert stale == ["second@left", "second@right"]
    assert (
        json.loads((root / "data/code/second.json").read_text())["stages/second.py"] == "# edited\n"
    )
