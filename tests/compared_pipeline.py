"""A small pipeline with rows, a trace and an evaluation, of whose runs two are compared."""

import json
import os
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from flows import why
from flows.lock import parse_lock

DVC_YAML = """\
stages:
  trace_code:
    cmd: python trace.py
    deps: [trace.py, stages]
    outs: [data/code]
  plan:
    cmd: python plan.py
    deps: [plan.py, data/raw]
    outs: [data/inputs.json, data/raw.json]
  prepare_data:
    cmd: python stages/prepare.py
    deps: [data/code/prepare.json, data/inputs.json, raw.txt]
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
      outs: ["data/evaluations/${item}", "data/journals/evaluate/${item}"]
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
PLAN = """\
import hashlib, json, pathlib
digests = {
    path.as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(pathlib.Path("data/raw").rglob("*.txt"))
}
inputs = {path: digest for path, digest in digests.items() if "/source/" in path}
pathlib.Path("data/inputs.json").write_text(json.dumps(inputs))
pathlib.Path("data/raw.json").write_text(json.dumps(digests))
"""
SOURCES = {
    "prepare": """\
import pathlib
pathlib.Path("data").mkdir(exist_ok=True)
total = int(pathlib.Path("raw.txt").read_text())
total += sum(int(path.read_text()) for path in pathlib.Path("data/raw/source").glob("*.txt"))
pathlib.Path("data/prompts").write_text(str(total))
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
folder = pathlib.Path("data/journals/evaluate", sys.argv[1])
folder.mkdir(parents=True)
(folder / "journal.jsonl").touch()
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
        (path / "plan.py").write_text(PLAN)
        (path / "raw.txt").write_text("1\n")
        (path / "data/raw/source").mkdir(parents=True)
        for name in ("source/one", "source/two", "other"):
            (path / f"data/raw/{name}.txt").write_text("0\n")
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

    def record(self, stage: str, cpu: str) -> None:
        """The run record of a stage that ran last on this processor."""
        inputs = parse_lock((self.path / "dvc.lock").read_bytes(), "dvc.lock")[stage].inputs
        number = len(list((self.path / "data/runs").rglob("run.json")))
        folder = self.path / "data/runs" / stage.replace("@", "/") / f"{inputs[:16]}-{number}"
        folder.mkdir(parents=True)
        content = {"cpu": {"model": cpu}, "ended": f"{2000 + number}"}
        (folder / "run.json").write_text(json.dumps(content))

    def said(self, *runs: str) -> list[str]:
        return why.describe(self.path, *runs).splitlines()
