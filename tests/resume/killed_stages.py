"""Stages of a small pipeline that are killed and go on, and what they left in the end.

Each is run in a repository where all others are up to date, its own outputs, its entry of dvc.lock
and dvc's memory of former runs removed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pipeline_copy import PipelineCopy, make_environment
from ruamel.yaml import YAML

from flows.dvc_internals import mend

KILLED = (-signal.SIGKILL, -signal.SIGTERM)
INJECTED = Path(__file__).parent / "injected"
FAMILIES = {
    "sft": "train@sft",
    "preference": "train@dpo",
    "kto": "train@kto",
    "ppo": "train@ppo",
    "group_rl": "train@grpo",
    "reward": "reward@preference",
    "outcome": "reward@outcome",
    "process": "reward@process",
    "sampling": "sample@sft",
    "pool": "pool@sft",
    "judging": "label@judge",
    "revising": "label@revision",
    "step labels": "label_steps@sft",
    "playing": "play@imitator",
    "rl in an environment": "train@guesser",
    "evaluating": "evaluate@grpo",
}


class KilledStages:
    """A whole run, and stages of it run again."""

    def __init__(self, copy: PipelineCopy) -> None:
        """`copy`: up to date."""
        self.path = copy.path
        self.lock = YAML(typ="safe").load(self.path / "dvc.lock")["stages"]

    def start(self, stage: str, **extra: str) -> subprocess.Popen[str]:
        """`dvc repro -s`, in a process group of its own, three checkpoints a second."""
        settings = {"PYTHONPATH": str(INJECTED), "POSTTRAIN_CHECKPOINT_SECONDS": "0.3"}
        return subprocess.Popen(
            [sys.executable, "-m", "dvc", "repro", "-s", stage], cwd=self.path,
            env=make_environment() | settings | extra, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def forget(self, stage: str) -> None:
        """As if the stage had never run."""
        yaml = YAML(typ="safe")
        content = yaml.load(self.path / "dvc.lock")
        entry = content["stages"].pop(stage, {"outs": []})
        with (self.path / "dvc.lock").open("w") as file:
            yaml.dump(content, file)
        git = ["git", "-C", str(self.path), "-c", "user.name=test", "-c", "user.email=@"]
        subprocess.run([*git, "add", "dvc.lock"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", stage], check=True)
        for output in entry["outs"]:
            remove(self.path / output["path"])
        shutil.rmtree(self.path / ".dvc/cache/runs", ignore_errors=True)
        for folder in (self.path / ".pipe").glob(f"{stage}-" + "[0-9a-f]" * 16):
            shutil.rmtree(folder)

    def counts(self, stage: str, folder: Path) -> tuple[dict[str, int], float]:
        """How many changes to files stage and dvc make, and how long they take."""
        self.forget(stage)
        folder.mkdir()
        begun = time.monotonic()
        output, _ = (process := self.start(stage, RESUME_COUNTS=str(folder))).communicate()
        assert process.returncode == 0, output
        seconds = time.monotonic() - begun
        result: dict[str, int] = {}
        for path in folder.iterdir():
            stage_name = path.name.partition("-")[0]
            result[stage_name] = max(result.get(stage_name, 0), int(path.read_text()))
        return result, seconds

    def check(self, stage: str, number: int, draw: random.Random, folder: Path) -> None:
        """Kill it `number` times, at changes to files and at times, then let it end."""
        counts, seconds = self.counts(stage, folder)
        self.compare(stage, "not killed")
        journals = self.journals(stage)
        self.forget(stage)
        killed: list[str] = []
        while len(killed) < number:
            kind = draw.choice(["stage", "stage", "dvc", "time", "all asked", "dvc asked"])
            if kind in ("stage", "dvc"):
                point = f"{kind}:{draw.randint(1, counts[kind])}"
                process = self.start(stage, RESUME_KILL=point)
            else:
                process, after = self.start(stage), draw.uniform(0, seconds)
                point = f"{kind} {after:.1f} s"
                try:
                    process.wait(timeout=after)
                except subprocess.TimeoutExpired:
                    if kind == "dvc asked":
                        process.terminate()
                    else:
                        sent = signal.SIGKILL if kind == "time" else signal.SIGTERM
                        os.killpg(process.pid, sent)
                    wait_for_end(process.pid, 120.0)  # some of it may still be starting
            output, _ = process.communicate()
            assert process.returncode in (0, *KILLED), f"{killed}, {point}: {output}"
            if process.returncode:
                killed.append(point)
                mend(self.path)  # as flows do, and stages/README.md tells who runs dvc by hand
            else:  # it ended before that point
                self.compare(stage, point)
                self.forget(stage)
        output, _ = (process := self.start(stage)).communicate()
        assert process.returncode == 0, f"after {killed}: {output}"
        self.compare(stage, " ".join(killed))
        assert self.journals(stage) == journals
        print(f"{stage}: killed at {', '.join(killed)}")

    def compare(self, stage: str, when: str) -> None:
        """Every bit of the outputs, dvc.lock, and the journals but for their times."""
        expected = self.lock[stage]
        actual = YAML(typ="safe").load(self.path / "dvc.lock")["stages"][stage]
        for item, other in zip(expected["outs"], actual["outs"], strict=True):
            if not item["path"].startswith("data/runs"):
                assert item == other, (stage, when)
        assert expected | {"outs": 0} == actual | {"outs": 0}, (stage, when)

    def journals(self, stage: str) -> dict[str, list[Any]]:
        """Rows of the seeds' journals without times, sorted."""
        folder = self.path / "data/journals" / stage.replace("@", "/")
        return {
            path.name: sorted(
                json.dumps([row["index"], {k: v for k, v in row["metrics"].items()
                                           if not k.startswith("time/")}], sort_keys=True)
                for row in map(json.loads, path.read_text().splitlines())
            )
            for path in folder.glob("journal-*.jsonl")
        }  # fmt: skip


def wait_for_end(group: int, seconds: float) -> None:
    """Wait for the end of every process of a group; one that nobody waits for is no more."""
    end = time.monotonic() + seconds
    while any(map(partial(is_alive, group), psutil.process_iter(["status"]))):
        assert time.monotonic() < end, f"processes of {group} that do not end"
        time.sleep(0.1)


def is_alive(group: int, item: psutil.Process) -> bool:
    with suppress(ProcessLookupError):
        return os.getpgid(item.pid) == group and item.info["status"] != psutil.STATUS_ZOMBIE
    return False


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
