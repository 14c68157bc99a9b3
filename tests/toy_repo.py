"""Tiny DVC repositories, made in a moment: one whose stages use the real runtime, a lighter one for
flows (`make_flow_toy`), and clones of it that share a remote, each as if on its own machine.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

ROOT, TOYS = Path(__file__).parents[1], Path(__file__).with_name("toys")
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@t")
DVC = (sys.executable, "-m", "dvc")

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
            row_run = Run(row=Row(name=name), config=None, seed=0, outputs=[], folder=run.folder,
                          log=run.log)
            seeds.for_each(train, row_run, content["seeds"], run, gpu=True)
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

# Writes its inputs and its name into out.txt; what else it does, params.yaml says.
FLOW_WORK = """\
import os, pathlib, shutil, signal, subprocess, sys, time
from ruamel.yaml import YAML
out, *inputs = map(pathlib.Path, sys.argv[1:])
section = YAML(typ="safe").load(pathlib.Path("params.yaml")).get(out.name, {})
mode = section.get("mode", "work")
print(section.get("time", "") + f"working on {out}")
with open("started.log", "a") as log:
    log.write(f"{out.name} {os.getpid()}\\n")
while mode == "wait" and not pathlib.Path("release").exists():
    time.sleep(0.05)
if mode == "value_error":
    raise ValueError("expected a number, found a word")
if mode == "killed_once" and not pathlib.Path("killed").exists():
    pathlib.Path("killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "spawn":
    subprocess.run([sys.executable, "-c",
                    "import os, time; open('grandchild.pid', 'w').write(str(os.getpid())); "
                    "time.sleep(600)"], check=True)
if out.exists():
    shutil.rmtree(out)
out.mkdir(parents=True)
(out / "out.txt").write_text("".join(i.read_text() for i in inputs) + f"{out.name} {section}\\n")
"""
# An output that differs at each execution, as a run record does.
RECORD = '(out / "record").write_text(f"{os.getpid()} {time.time()}")\n'


@dataclass(frozen=True)
class ToyRepo:
    """A repository, and how its commands are started."""

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
        return self.run(*DVC, "repro", *arguments, code=code, **extra)

    def flow(self, *arguments: str, code: int = 0, **extra: str) -> str:
        return self.run(sys.executable, "-m", "flows.local", *arguments, code=code, **extra)

    def commit(self, message: str = "toy") -> None:
        self.run("git", "add", "-A")
        self.run(*GIT, "commit", "-qm", message)

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

    # of the lighter one

    def change(self, **sections: dict[str, object]) -> None:
        """`change(left={"mode": "wait"})`: sections of params.yaml."""
        path, yaml = self.path / "params.yaml", YAML(typ="safe")
        content = yaml.load(path)
        for name, values in sections.items():
            content.setdefault(name, {}).update(values)
        yaml.dump(content, path)

    def started(self) -> list[str]:
        """Names of the stages whose command has run, in the order in which they started."""
        path = self.path / "started.log"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def locked(self) -> dict[str, Any]:
        """The entries of dvc.lock; their order in the file is that in which stages ended."""
        return YAML(typ="safe").load(self.path / "dvc.lock")["stages"]

    def results(self) -> dict[str, Any]:
        """dvc.lock and outputs, but for what differs at each execution."""
        entries = {name: (item["cmd"], item.get("params")) for name, item in self.locked().items()}
        return entries | {path.parent.name: path.read_text() for path in self.path.rglob("out.txt")}

    def grandchild(self) -> psutil.Process:
        """The process that a stage in mode `spawn` starts, once it has."""
        path = self.path / "grandchild.pid"
        wait_until(lambda: path.exists() and path.read_text(), "the stage's child process")
        return psutil.Process(int(path.read_text()))


def wait_until(true: Callable[[], object], what: str = "an event", seconds: float = 900.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


def make_environment(**extra: str) -> dict[str, str]:
    """Ours without settings of the tools that are tested, and with our Python first."""
    hidden = ("DVC_", "MLFLOW_", "CUDA_", "GIT_", "PREFECT_", "POSTTRAIN_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    path = str(Path(sys.executable).parent) + os.pathsep + ours["PATH"]
    settings = {"DVC_NO_ANALYTICS": "1", "CUDA_VISIBLE_DEVICES": "", "SHELL": "/bin/sh"}
    return ours | settings | {"PATH": path, "PYTHONPATH": str(ROOT)} | extra


def init_dvc(path: Path) -> None:
    """What `git init` and `dvc init` make, without their seconds."""
    (path / ".dvc").mkdir(parents=True)
    (path / ".dvc/config").write_text("[core]\n    analytics = false\n    autostage = false\n")
    (path / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")
    subprocess.run(["git", "init", "-qb", "main", str(path)], check=True)


def make_toy_repo(path: Path) -> ToyRepo:
    repo = ToyRepo(path, make_environment())
    init_dvc(path)
    (path / "work.py").write_text(textwrap.dedent(WORK))
    shutil.copy(TOYS / "stages.yaml", path / "dvc.yaml")
    repo.set_params()
    (path / ".gitignore").write_text(
        "/data/*\n/.pipe/\n/mlflow.db\n/mlruns/\n/stopped\n__pycache__/\n"
    )
    (path / ".dvc/config").write_text((ROOT / ".dvc/config").read_text())
    repo.commit()
    return repo


def make_flow_toy(path: Path) -> ToyRepo:
    """The lighter one, with flows/ and Prefect's files in it; nothing is committed."""
    init_dvc(path)
    shutil.copy(TOYS / "flows.yaml", path / "dvc.yaml")
    (path / "params.yaml").write_text("left: {mode: work}\nright: {mode: work}\n")
    (path / "work.py").write_text(FLOW_WORK)
    (path / "raw.txt").write_text("raw\n")
    ignored = ("/data/**", "!/data/**/", "/started.log", "/release", "/killed", "__pycache__/")
    (path / ".gitignore").write_text("\n".join([*ignored, ""]))
    shutil.copytree(ROOT / "flows", path / "flows", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("prefect.yaml", "prefect.toml"):
        shutil.copy(ROOT / name, path / name)
    return ToyRepo(path, make_environment())


def copy_repo(repo: ToyRepo, path: Path) -> ToyRepo:
    shutil.copytree(repo.path, path, symlinks=True)
    return ToyRepo(path, dict(repo.environment))


@dataclass
class Clones:
    """The repository that they are clones of, and what differs from our environment."""

    origin: ToyRepo
    environment: dict[str, str] = field(default_factory=dict)

    def share(self, url: str, **options: str) -> None:
        """Name the default remote, and commit all."""
        self.origin.run(*DVC, "remote", "add", "-q", "-d", "results", url)
        for option in options.items():
            self.origin.run(*DVC, "remote", "modify", "-q", "results", *option)
        work = self.origin.path / "work.py"
        work.write_text(work.read_text() + RECORD)
        self.origin.commit()

    def clone(self, name: str) -> ToyRepo:
        path = self.origin.path.parent / name
        subprocess.run(["git", "clone", "-q", str(self.origin.path), str(path)], check=True)
        # Where DVC keeps what it knows of a remote: elsewhere on another machine.
        site = {"DVC_SITE_CACHE_DIR": f"{path}.site", "PWD": str(path)}
        return ToyRepo(path, self.origin.environment | self.environment | site)


def count_starts(*clones: ToyRepo) -> Counter[str]:
    """How often each stage was started, in all clones together."""
    return Counter(name for clone in clones for name in clone.started())
