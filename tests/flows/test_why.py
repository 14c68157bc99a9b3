"""Why two runs differ, on a small pipeline with rows, a trace and an evaluation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows import why

DVC_YAML = """\
stages:
  trace_code:
    cmd: python trace.py
    deps: [trace.py, stages]
    outs: [data/code]
  prepare_data:
    cmd: python stages/prepare.py
    deps: [data/code/prepare.json, raw.txt]
    outs: [data/prompts]
  train:
    foreach: [left, right]
    do:
      cmd: python stages/train.py ${item}
      deps: [data/code/train.json, data/prompts]
      params: ["${item}"]
      outs: ["data/policies/${item}"]
  evaluate:
    foreach: [left, right]
    do:
      cmd: python stages/evaluate.py ${item}
      deps: [data/code/evaluate.json, "data/policies/${item}"]
      outs: ["data/evaluations/${item}", "data/runs/evaluate/${item}"]
  compare:
    cmd: cat data/evaluations/*/0/per_problem.jsonl > data/report
    deps: [data/evaluations]
    outs: [data/report]
"""
TRACE = """\
import hashlib, json, pathlib
folder = pathlib.Path("data/code")
folder.mkdir(parents=True, exist_ok=True)
for file in sorted(pathlib.Path("stages").glob("*.py")):
    read = {str(file): hashlib.sha256(file.read_bytes()).hexdigest()}
    (folder / (file.stem + ".json")).unlink(missing_ok=True)
    (folder / (file.stem + ".json")).write_text(json.dumps(read))
"""
SOURCES = {
    "prepare": """\
import pathlib
pathlib.Path("data").mkdir(exist_ok=True)
pathlib.Path("data/prompts").write_text(pathlib.Path("raw.txt").read_text().strip())
""",
    "train": """\
import pathlib, sys
from ruamel.yaml import YAML

def rate(name):
    return YAML(typ="safe").load(pathlib.Path("params.yaml"))[name]["rate"]

def main(name):
    accuracy = rate(name) + int(pathlib.Path("data/prompts").read_text()) / 100
    pathlib.Path("data/policies").mkdir(exist_ok=True)
    pathlib.Path("data/policies/" + name).write_text(str(accuracy))

main(sys.argv[1])
""",
    "evaluate": """\
import json, os, pathlib, sys
accuracy = float(pathlib.Path("data/policies/" + sys.argv[1]).read_text())
for seed in range(3):
    folder = pathlib.Path("data/evaluations", sys.argv[1], str(seed))
    folder.mkdir(parents=True)
    rows = [{"id": str(i), "mean_accuracy": accuracy + i / 10} for i in range(3)]
    (folder / "per_problem.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
folder = pathlib.Path("data/runs/evaluate", sys.argv[1])
folder.mkdir(parents=True)
(folder / "run.json").write_text(json.dumps({"cpu": {"model": os.environ.get("CPU", "old one")}}))
""",
}
PARAMS = {"left": {"rate": 0.5}, "right": {"rate": 0.25}}


class Pipeline:
    """The pipeline in a git repository of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "stages").mkdir()
        for name, source in SOURCES.items():
            (path / f"stages/{name}.py").write_text(source)
        (path / "trace.py").write_text(TRACE)
        (path / "dvc.yaml").write_text(DVC_YAML)
        (path / "raw.txt").write_text("1\n")
        self.parameters(PARAMS)
        self.call("git", "init", "-q")
        self.dvc("init", "-q")
        self.repro()
        self.call("git", "add", ".")
        self.call("git", "-c", "user.name=a", "-c", "user.email=@", "commit", "-qm", "first")

    def parameters(self, content: object) -> None:
        with (self.path / "params.yaml").open("w") as file:
            YAML().dump(content, file)

    def call(self, *command: str, **environment: str) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        whole = {**os.environ, "PATH": path, **environment}
        subprocess.run(command, cwd=self.path, env=whole, check=True, capture_output=True)

    def dvc(self, *arguments: str, **environment: str) -> None:
        self.call(sys.executable, "-m", "dvc", *arguments, **environment)

    def repro(self) -> None:
        self.dvc("repro", "-q")

    def said(self, *runs: str) -> list[str]:
        return why.describe(self.path, *runs).splitlines()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Pipeline(tmp_path_factory.mktemp("ran")).path


@pytest.fixture
def pipeline(ran: Path, tmp_path: Path) -> Pipeline:
    shutil.copytree(ran, tmp_path / "copy", symlinks=True)
    one = object.__new__(Pipeline)
    one.path = tmp_path / "copy"
    return one


def test_a_number_reaches_its_row_and_the_difference_is_that_of_the_same_problems(
    pipeline: Pipeline,
) -> None:
    assert pipeline.said() == ["HEAD and this folder: 0 of 6 stages have other results"]
    pipeline.parameters({**PARAMS, "left": {"rate": 0.75}})
    pipeline.repro()
    said = pipeline.said()
    assert said[:4] == [
        "HEAD and this folder: 3 of 6 stages have other results",
        "",
        "left.rate: 0.5 -> 0.75",
        "  other results: train@left evaluate@left compare",
    ]
    # 0.51, 0.61 and 0.71 for each of three seeds: their spread is that of problems alone.
    assert said[-2] == "Mean accuracy on the test problems, %, and the difference:"
    assert said[-1].startswith("  left: 61.0 [")
    assert said[-1].endswith("25.0 [25.0, 25.0] of the same 3 problems")
    assert pipeline.said("HEAD", "HEAD")[0].startswith("HEAD and HEAD: 0 of 6")


def test_an_input_that_no_stage_makes(pipeline: Pipeline) -> None:
    (pipeline.path / "raw.txt").write_text("2\n")
    pipeline.repro()
    said = pipeline.said()
    assert said[2] == "raw.txt: other content"
    changed = said[3].removeprefix("  other results: ").split()
    assert sorted(changed) == sorted(
        ["prepare_data", "train@left", "train@right", "evaluate@left", "evaluate@right", "compare"]
    )
    # Two rows read what it changed: it is the first cause of both, and the only one.
    assert said[4:6] == ["", "Mean accuracy on the test problems, %, and the difference:"]


def test_a_source_file_is_named_with_its_functions_and_one_without_effect_apart(
    pipeline: Pipeline,
) -> None:
    train = SOURCES["train"].replace('["rate"]', '["rate"] + 0.1')
    (pipeline.path / "stages/train.py").write_text(train)
    evaluate = "# why\n" + SOURCES["evaluate"]
    (pipeline.path / "stages/evaluate.py").write_text(evaluate)
    prepare = SOURCES["prepare"].replace("exist_ok=True", "exist_ok=1 == 1")
    (pipeline.path / "stages/prepare.py").write_text(prepare)
    pipeline.repro()
    said = "\n".join(pipeline.said())
    assert "stages/train.py: rate\n  other results: train@left train@right" in said
    assert "stages/evaluate.py: comments alone" in said
    idle = said.partition("Without effect on any result:")[2]
    assert "  stages/prepare.py: statements" in idle


@pytest.mark.slow
def test_without_the_cache_a_commit_still_has_its_files(pipeline: Pipeline) -> None:
    train = SOURCES["train"].replace('["rate"]', '["rate"] + 0.1')
    (pipeline.path / "stages/train.py").write_text(train)
    other = pipeline.path.parent / "their.lock"
    shutil.copy(pipeline.path / "dvc.lock", other)
    old = YAML(typ="safe").load(other)["stages"]["train@left"]["deps"][0]
    assert old["path"] == "data/code/train.json"
    pipeline.repro()
    (pipeline.path / ".dvc/cache/files/md5" / old["md5"][:2] / old["md5"][2:]).unlink()
    assert "stages/train.py: rate" in pipeline.said()
    shutil.rmtree(pipeline.path / ".dvc/cache")
    unknown = "data/code/train.json: other source files; which ones is not in the cache"
    assert unknown in pipeline.said(str(other))
    assert "  left: no problem and seed of both is in the cache" in pipeline.said(str(other))


@pytest.mark.slow
def test_other_bits_of_the_same_inputs_name_the_processors(pipeline: Pipeline) -> None:
    source = pipeline.path / "stages/evaluate.py"
    source.write_text(source.read_text().replace("i / 10", "i / 10 + len(os.environ['CPU']) / 100"))
    pipeline.dvc("repro", "-q", CPU="first")
    shutil.copy(pipeline.path / "dvc.lock", pipeline.path / "old.lock")
    pipeline.dvc("repro", "-q", "-f", "-s", "evaluate@left", CPU="another")
    pipeline.dvc("repro", "-q", "-s", "compare")
    said = pipeline.said(str(pipeline.path / "old.lock"))
    assert said[2:4] == [
        "nothing that evaluate@left reads: it ran on first, then on another",
        "  other results: evaluate@left compare",
    ]


@pytest.mark.slow
def test_rows_that_came_and_went(pipeline: Pipeline) -> None:
    text = DVC_YAML.replace("[left, right]", "[left, middle]")
    (pipeline.path / "dvc.yaml").write_text(text)
    pipeline.parameters({**PARAMS, "middle": {"rate": 0.1}})
    lock = YAML(typ="safe").load(pipeline.path / "dvc.lock")
    for name in ("train@right", "evaluate@right"):
        del lock["stages"][name]
    with (pipeline.path / "dvc.lock").open("w") as file:
        YAML().dump(lock, file)
    pipeline.repro()
    said = pipeline.said()
    assert "evaluate@middle is new" in said
    assert "Only in HEAD: train@right evaluate@right" in said


def test_what_cannot_be_compared_is_refused(pipeline: Pipeline) -> None:
    with pytest.raises(ValueError, match=r"there is no dvc\.lock in nowhere"):
        pipeline.said("nowhere")


def test_functions_that_differ() -> None:
    old = '''"""Doc."""
import os
A = 1
class Kept:
    """Doc."""
    x: int = 1
    def same(self):
        """Doc."""
        return 1
    def other(self):
        return 2
'''
    assert why.functions(old, old.replace("Doc", "Text") + "# more\n") == []
    new = (
        old.replace("return 2", "return 3").replace("A = 1", "A = 2").replace("int = 1", "int = 2")
    )
    assert why.functions(old, new) == ["A", "Kept.x", "Kept.other"]
    assert why.functions(old, old.replace("import os", "import sys")) == ["imports"]
