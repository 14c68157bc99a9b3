"""A DVC stage of three seeds through `stages.stage.run`, so small that it mostly starts up."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from toy_repo import TOYS

from stages import stage

SEEDS = (0, 1, 2)
# A line of started.log for each seed that is computed; TOY_FAIL, TOY_KILL and TOY_EDIT name a seed.
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


def others():
    return len(list(Path(".pipe").glob("*/seed-*/finished")))


def train(run):
    with open("started.log", "a") as log:
        log.write(f"seed-{run.seed}\\n")
    steps = (Step(index=i, metrics={"loss": run.config.rate * (run.seed + i), "time/step": 0.1})
             for i in range(3))
    losses = [step.metrics["loss"] for step in run.track(steps, total=3)]
    if os.environ.get("TOY_FAIL") == str(run.seed):
        while others() < 2:
            time.sleep(0.01)
        raise ValueError("on purpose")
    if os.environ.get("TOY_EDIT") == str(run.seed):
        Path("params.yaml").write_text("rate: 0.2\\nseeds: [0, 1, 2]\\n")
    if Path(f"refuse-{run.seed}").exists():
        raise ValueError("refused")
    if os.environ.get("TOY_KILL") == str(run.seed):
        while os.environ.get("POSTTRAIN_SEEDS") != str(run.seed) and others() < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    (run.model_path / "deep").mkdir()
    (run.model_path / "deep/weights").write_text(str(losses))
    return {"loss": losses[-1] / 3, "none": float("nan")}


if __name__ == "__main__":
    process.run(lambda *words: stage.run(train, words, Config, gpu=True))
"""


def write_seed_stage(root: Path, rate: float = 0.1) -> None:
    shutil.copy(TOYS / "seeds.yaml", root / "dvc.yaml")
    (root / "seed_work.py").write_text(WORK)
    (root / "params.yaml").write_text(f"rate: {rate}\nseeds: {list(SEEDS)}\n")


def run_seed_stage(start: str = "base") -> None:
    """The stage in this process, in the repository that is its working directory.

    With another `start` it is not the command of dvc.yaml.
    """
    content: dict[str, Any] = {"__name__": "seed_work"}
    exec(WORK, content)
    words = ["train_sft", "toy", "--train", "sft", "--from", start, "--on", "prompts"]
    before, sys.argv = sys.argv, ["seed_work.py", *words]
    try:
        stage.run(content["train"], words, content["Config"], gpu=True)
    finally:
        sys.argv = before


def started(root: Path) -> list[str]:
    """The seeds that were computed in a clone since the last call."""
    path = root / "started.log"
    lines = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def read_outputs(root: Path) -> dict[str, Any]:
    """Every output of the row, byte by byte, and dvc.lock where there is one."""
    files: dict[str, Any] = {
        str(path.relative_to(root)): path.read_bytes()
        for name in ("policies", "journals")
        for path in sorted((root / "data" / name).rglob("*"))
        if path.is_file()
    }
    lock = root / "dvc.lock"
    return files | ({"lock": lock.read_bytes()} if lock.exists() else {})


def records(root: Path) -> list[dict[str, Any]]:
    paths = sorted(root.glob("data/runs/train/toy/*/run.json"), key=os.path.getmtime)
    return [json.loads(path.read_text()) for path in paths]
