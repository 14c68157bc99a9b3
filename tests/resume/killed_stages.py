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
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pipeline_copy import PipelineCopy, make_environment
from ruamel.yaml import YAML

from flows.dvc_internals import mend

INJECTED = Path(__file__).parent / "injected"
CHANGES = ("stage", "dvc")
"""Processes that die, with all that they belong to, before a change that they make to a file."""
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
"""Signals that they get at a time."""
TARGETS = {"SIGKILL": ("all", "a process", "dvc"), "SIGTERM": ("all", "a process", "dvc")}
"""Signal -> who may get it; Ctrl-C and the end of a terminal reach the whole process group."""
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
    "a long update": "train@long",
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

    def check(self, stage: str, number: int, draw: random.Random) -> None:
        """Kill it `number` times, then let it end with the bits and journals of the whole run."""
        undisturbed = self.measure(stage)
        journals = self.journals(stage)
        self.forget(stage)
        kills: list[str] = []
        while len(kills) < number:
            kind, is_sent = draw.choice([*CHANGES, *SIGNALS]), False
            if kind in CHANGES:
                point = str(draw.randint(1, int(undisturbed[kind])))
                process = self.start(stage, RESUME_KILL=f"{kind}:{point}")
            else:
                process = self.start(stage)
                after = draw.uniform(0, 2 / (1 + number)) * undisturbed["seconds"]
                target = draw.choice(TARGETS.get(kind, ("all",)))
                point = f"to {target} after {after:.1f} s"
                try:
                    process.wait(timeout=after)
                except subprocess.TimeoutExpired:
                    send(process.pid, getattr(signal, kind), target, draw)
                    is_sent = True
            output, _ = process.communicate()
            wait_for_end(process.pid, 120.0)  # some of it may still be starting
            by_itself = f"{kills}, {kind} {point}: {output}"
            assert is_sent or process.returncode in (0, -signal.SIGKILL), by_itself
            mend(self.path)  # as flows do, and stages/README.md tells who runs dvc by hand
            if process.returncode:
                kills.append(f"{kind} {point}")
            else:  # it ended before that point, or what got the signal was of no importance
                self.compare(stage, f"{kills}, {kind} {point}")
                self.forget(stage)
        self.end(stage, f"after {kills}")
        assert self.journals(stage) == journals, f"journals after {kills}"
        print(f"{stage}: killed by {', '.join(kills)}")

    def measure(self, stage: str) -> dict[str, float]:
        """Run it undisturbed: its seconds, and the changes to files that stage and dvc make."""
        self.forget(stage)
        with tempfile.TemporaryDirectory() as counts:
            begun = time.monotonic()
            self.end(stage, "not killed", RESUME_COUNTS=counts)
            result = {"seconds": time.monotonic() - begun}
            for kind in CHANGES:
                result[kind] = max(int(path.read_text()) for path in Path(counts).glob(f"{kind}-*"))
        return result

    def end(self, stage: str, when: str, **extra: str) -> None:
        """Run it to its end: it has the bits of the whole run."""
        output, _ = (process := self.start(stage, **extra)).communicate()
        assert process.returncode == 0, f"{when}: {output}"
        self.compare(stage, when)

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


def send(group: int, number: int, target: str, draw: random.Random) -> None:
    """Send a signal to the process group of a dvc, to dvc alone, or to one process below it."""
    below = psutil.Process(group).children(recursive=True)
    if target == "all":
        os.killpg(group, number)
    elif target == "dvc" or not below:
        os.kill(group, number)
    else:
        draw.choice(below).send_signal(number)


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
