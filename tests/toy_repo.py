"""A tiny DVC repository whose stages use the real runtime."""

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

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

from stages import params
from stages.runtime import outputs, progress, runs


@dataclass(frozen=True)
class Step:
    index: int
    metrics: dict[str, float]


def steps(rate: float):
    for index in range(6):
        if index == 4 and (crash := os.environ.get("TOY_STOP")):
            Path("stopped").write_text(str(os.getpid()))
            if crash == "fail":
                raise RuntimeError("as asked")
            time.sleep(300)
        yield Step(index, {"loss/total": rate * random.random(), "time/step": 0.5})


stage = sys.argv[1]
output = Path("data") / stage.replace("@", "/")
content = params.read()
random.seed(content["seed"])
with runs.start(stage, output, gpu=True) as run:
    for step in progress.track(steps(content["rate"]), total=6, label=stage):
        run.log(step.index, step.metrics)
    drawn = random.random()
    if stage.startswith("train"):
        with outputs.replace(output / "policy") as temporary:
            temporary.mkdir()
            (temporary / "config.json").write_text("{}")
            (temporary / "weights").write_text(str(content["rate"] * drawn))
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps({"pass@4": 0.5, "drawn": drawn}))
    elif stage.startswith("sample"):
        with outputs.replace(output / "pool.jsonl") as temporary:
            row = {"id": "a", "completion": "4 #### 4", "completion_ids": [1, 2], "drawn": drawn}
            temporary.write_text((json.dumps(row) + "\\n") * 60)
    elif stage.startswith("probe"):
        name = stage.partition("@")[2]
        accuracy = {"sft": 0.25, "dpo": content["goal"]}[name]
        probes = {"policy": f"train_{name}/policy", "dev_accuracy": {"value": accuracy}}
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps(probes))
    else:
        numbers = {
            "sft": {"stage": "train_sft", "mean_accuracy": 0.25},
            "dpo": {"stage": "train_dpo", "mean_accuracy": content["goal"]},
        }
        gain = {"difference": 0.25, "low": 0.1, "high": 0.4}
        numbers["dpo"]["versus_baseline"] = {"mean_accuracy": gain}
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps({"policies": numbers}))
        with outputs.replace(output / "report.md") as temporary:
            temporary.write_text("# Report")
'''

DVC_YAML = """
stages:
  train_sft:
    cmd: python work.py train_sft
    deps: [work.py]
    params: [rate, seed]
    outs: [data/train_sft/policy, data/train_sft/run]
    metrics: [data/train_sft/metrics.json: {cache: false}]
  train_dpo:
    cmd: python work.py train_dpo
    deps: [work.py, data/train_sft/policy]
    params: [rate, seed]
    outs: [data/train_dpo/policy, data/train_dpo/run]
    metrics: [data/train_dpo/metrics.json: {cache: false}]
  sample_candidates:
    foreach: [dpo-test]
    do:
      cmd: python work.py sample_candidates@${item}
      deps: [work.py, data/train_dpo/policy]
      params: [seed]
      outs: ['data/sample_candidates/${item}/pool.jsonl', 'data/sample_candidates/${item}/run']
  compare_policies:
    cmd: python work.py compare_policies
    deps: [work.py, data/sample_candidates/dpo-test/pool.jsonl]
    params: [goal]
    outs: [data/compare_policies/report.md, data/compare_policies/run]
    metrics: [data/compare_policies/metrics.json: {cache: false}]
  track:
    cmd: python -m stages.track
    deps: [data/train_sft/run, data/train_dpo/run, data/sample_candidates/dpo-test/run,
      data/compare_policies/run]
    outs: [data/track/manifest.json]
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
        told, _ = process.communicate(timeout=600)
        assert process.returncode == code, told
        return told

    def repro(self, *arguments: str, code: int = 0, **extra: str) -> str:
        return self.run("dvc", "repro", *arguments, code=code, **extra)

    def set_params(self, *, rate: str = "1e-5", seed: int = 0, goal: float = 0.5) -> None:
        text = f"rate: {rate}\nseed: {seed}\ngoal: {goal}\n"
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
