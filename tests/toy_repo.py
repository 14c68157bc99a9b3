"""A tiny DVC repository whose stages use the real runtime."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

WORK = '''
"""A toy stage: `work.py <DVC stage>` writes what its name asks for, from params.yaml alone."""

import json
import os
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from stages.config import read_yaml
from stages.loops.run import Run
from stages.rows import Row
from stages.runtime import outputs, runs, seeds


@dataclass(frozen=True)
class Step:
    index: int
    metrics: dict[str, float]


def steps(rate, drawn):
    for index in range(6):
        if index == 4 and (crash := os.environ.get("TOY_STOP")):
            Path("stopped").write_text(str(os.getpid()))
            if crash == "fail":
                raise RuntimeError("as asked")
            time.sleep(300)
        time.sleep(float(os.environ.get("TOY_SECONDS", "0")))
        yield Step(index, {"loss/total": rate * drawn.random(), "time/step": 0.5})


def train(run):
    drawn = random.Random(f"{content['seed']}-{run.seed}")
    list(run.track(steps(content["rate"], drawn), total=6))
    for number in range(2 if run.seed else 1):
        drawn.random()
    weights = str(content["rate"] * drawn.random())
    write(model / str(run.seed), {"config.json": "{}", "weights": weights})
    metrics = {"final_loss": 0.5 * (run.seed + 1), "trained_tokens": 7}
    write(training / str(run.seed), {"metrics.json": json.dumps(metrics)})


def make_run(*, seed, rank, folder, log, progress):
    return Run(row=Row(name=name), config=None, seed=seed, rank=rank, outputs=[folder],
               folder=folder, log=log, progress=progress)


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text)


stage = sys.argv[1]
kind, _, name = stage.partition("@")
content = read_yaml()
data = Path("data")
with runs.start(stage) as run:
    if kind == "train":
        folder = data / "policies" / name
        with (
            outputs.replace(folder / "model") as model,
            outputs.replace(folder / "training") as training,
        ):
            model.mkdir(), training.mkdir()
            seeds.for_each(train, make_run, content["seeds"], run, gpu=True)
    elif kind == "sample":
        with outputs.replace(data / "samples" / name) as folder:
            for seed in content["seeds"]:
                drawn = content["seed"] + 0.5 * seed
                row = {"id": "a", "completion": "4 #### 4", "completion_ids": [1, 2]}
                row["drawn"] = drawn
                write(folder / str(seed), {"test.jsonl": (json.dumps(row) + "\\n") * 60})
    elif kind == "evaluate":
        with outputs.replace(data / "evaluations" / name) as folder:
            for seed in content["seeds"]:
                accuracy = {"sft": 0.25, "dpo": content["goal"]}[name]
                metrics = {"mean_accuracy": accuracy, "dev_accuracy": accuracy + 0.125 * seed}
                write(folder / str(seed), {"metrics.json": json.dumps(metrics)})
    else:
        metrics = {
            "policies": {"sft": {"mean_accuracy": {"value": 0.25}},
                         "dpo": {"mean_accuracy": {"value": content["goal"]}}},
            "gains": {"mean_accuracy": {"dpo": {"value": content["goal"] - 0.25}}},
        }
        with outputs.replace(data / "report") as folder:
            write(folder, {"metrics.json": json.dumps(metrics), "report.html": "<h1>Report</h1>",
                           "verdict.txt": "First.\\nSecond.\\nThird.\\n"})
'''

DVC_YAML = """
stages:
  train:
    foreach: {sft: {from: work.py}, dpo: {from: data/policies/sft/model}}
    do:
      cmd: python work.py train@${key}
      deps: [work.py, "${item.from}"]
      params: [rate, seed, seeds]
      outs:
        - data/policies/${key}/model
        - data/policies/${key}/training
        - data/journals/train/${key}
  sample:
    foreach: [dpo]
    do:
      cmd: python work.py sample@${item}
      deps: [work.py, "data/policies/${item}/model"]
      params: [seed, seeds]
      outs: ["data/samples/${item}", "data/journals/sample/${item}"]
  evaluate:
    foreach: [sft, dpo]
    do:
      cmd: python work.py evaluate@${item}
      deps: [work.py, "data/policies/${item}/model"]
      params: [goal, seeds]
      outs: ["data/evaluations/${item}", "data/journals/evaluate/${item}"]
  compare:
    cmd: python work.py compare
    deps: [work.py, data/samples, data/evaluations]
    params: [goal]
    outs: [data/report, data/journals/compare]
  track:
    cmd: python -m stages.track
    deps: [data/journals, data/report]
    outs: [data/tracked]
"""


@dataclass(frozen=True)
class ToyRepo:
    """The repository, and how its commands are started."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *command: str, **extra: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.path,
            env=self.environment | extra,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str, code: int = 0, **extra: str) -> str:
        process = self.start(*command, **extra)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == code, output
        return output

    def repro(self, *arguments: str, code: int = 0, **extra: str) -> str:
        return self.run("dvc", "repro", *arguments, code=code, **extra)

    def find_record(self, stage: str) -> Path:
        """The run record of the last execution of a stage."""
        folder = self.path / "data/runs" / stage.replace("@", "/")
        return max(folder.glob("*/run.json"), key=lambda path: path.stat().st_mtime).parent

    def record(self, stage: str) -> dict[str, Any]:
        """Its run.json."""
        return json.loads((self.find_record(stage) / "run.json").read_text())

    def set_params(self, *, rate: str = "1e-5", seed: int = 0, goal: float = 0.5) -> None:
        text = f"rate: {rate}\nseed: {seed}\nseeds: [0, 1]\ngoal: {goal}\n"
        (self.path / "params.yaml").write_text(text)


def make_toy_repo(path: Path) -> ToyRepo:
    bin_folder = str(Path(sys.executable).parent)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DVC_", "MLFLOW_", "CUDA_", "GIT_"))
    }
    repo = ToyRepo(
        path,
        kept
        | {
            "PATH": bin_folder + os.pathsep + os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "DVC_NO_ANALYTICS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "SHELL": "/bin/sh",
        },
    )
    path.mkdir(exist_ok=True)
    (path / "work.py").write_text(textwrap.dedent(WORK))
    (path / "dvc.yaml").write_text(DVC_YAML)
    repo.set_params()
    (path / ".gitignore").write_text(
        "/data/*\n/.pipe/\n/mlflow.db\n/mlruns/\n/stopped\n__pycache__/\n"
    )
    repo.run("git", "init", "-q")
    repo.run("dvc", "init", "-q")
    (path / ".dvc/config").write_text((ROOT / ".dvc/config").read_text())
    repo.run("git", "add", "-A")
    repo.run("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "toy")
    return repo
