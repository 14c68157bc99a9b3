"""A DVC stage of three seeds through `stages.stage.run`, so small that it mostly starts up."""

import json
import os
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

STAGE, SEEDS = "train@toy", (0, 1, 2)
DVC_YAML = """\
stages:
  train:
    foreach: [toy]
    do:
      cmd: |-
        python -m stages.runtime.preflight
        python seed_work.py train_sft ${item} --train sft --from base --on prompts
      deps: [seed_work.py]
      params: [rate, seeds]
      outs: ["data/policies/${item}/model", "data/policies/${item}/training",
             "data/journals/train/${item}"]
      meta: {gpu: 1}
"""
# A line of started.log for each seed that is computed; TOY_FAIL and TOY_KILL name a seed.
WORK = """\
import os, signal, time
from pathlib import Path
from stages import stage
from stages.config import Params
from stages.loops.work import Step
from stages.runtime import process


class Config(Params):
    rate: float
    seeds: list[int]


def train(run):
    with open("started.log", "a") as log:
        log.write(f"seed-{run.seed}\\n")
    steps = (Step(index=i, metrics={"loss": run.config.rate * (run.seed + i), "time/step": 0.1})
             for i in range(3))
    losses = [step.metrics["loss"] for step in run.track(steps, total=3)]
    if os.environ.get("TOY_FAIL") == str(run.seed):
        while len(list(Path(".pipe").glob("*/seed-*/finished"))) < 2:
            time.sleep(0.01)
        raise ValueError("as asked")
    if Path(f"refuse-{run.seed}").exists():
        raise ValueError("refused")
    if os.environ.get("TOY_KILL") == str(run.seed):
        os.kill(os.getpid(), signal.SIGKILL)
    (run.model_path / "deep").mkdir()
    (run.model_path / "deep/weights").write_text(str(losses))
    return {"loss": losses[-1] / 3, "none": float("nan")}


process.run(lambda *words: stage.run(train, words, Config, gpu=True))
"""


def write_seed_stage(root: Path, rate: float = 0.1) -> None:
    (root / "dvc.yaml").write_text(DVC_YAML)
    (root / "seed_work.py").write_text(WORK)
    (root / "params.yaml").write_text(f"rate: {rate}\nseeds: {list(SEEDS)}\n")


def started(root: Path) -> list[str]:
    """The seeds that were computed in a clone since the last call."""
    path = root / "started.log"
    lines = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def read_outputs(root: Path) -> dict[str, Any]:
    """Every output of the row, byte by byte, and its entry of dvc.lock."""
    files: dict[str, Any] = {
        str(path.relative_to(root)): path.read_bytes()
        for name in ("policies", "journals")
        for path in sorted((root / "data" / name).rglob("*"))
        if path.is_file()
    }
    return files | {"lock": YAML(typ="safe").load(root / "dvc.lock")["stages"][STAGE]}


def records(root: Path) -> list[dict[str, Any]]:
    paths = sorted(root.glob("data/runs/train/toy/*/run.json"), key=os.path.getmtime)
    return [json.loads(path.read_text()) for path in paths]
