"""Sweep of kills: every kind of stage, each signal, random moments; how many end with other bits.

    cd tests && python -m resume FOLDER -n 200 [--seconds 280] [--seed 0] [--stages train@sft ...]

FOLDER gets a small pipeline of all kinds of stages (pipeline_edits.yaml: `families`, and a policy
whose update takes 30 s), made up to date first. Each trial runs one stage as if it had never run,
kills it up to six times, lets it end, and compares outputs, dvc.lock and journals. Moments,
signals and who gets them follow from the seed and the trial's number. Trials stand in
FOLDER/trials.jsonl: the same command goes on with the next one, so a sweep may be cut in parts of
`--seconds`. Exits with 1 where bits differ.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from conftest import shrink
from pipeline_copy import PipelineCopy, find_edit, make_environment
from resume.killed_stages import FAMILIES, KilledStages, remove, wait_for_end
from ruamel.yaml import YAML

from flows.dvc_internals import mend

STAGES = [*FAMILIES.values(), "train@long"]
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
TARGETS = {"SIGKILL": ["all", "a process", "dvc"], "SIGTERM": ["all", "a process", "dvc"]}
"""Signal -> who may get it; Ctrl-C and the end of a terminal reach the whole process group."""


def main() -> int:
    """Run the command line; returns its exit status."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m resume", None, __doc__, formatter_class=style)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-n", type=int, default=200, help="kills")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial after")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stages", nargs="+", default=STAGES, help="which, in turn")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also under nohup
    stages, trials = open_stages(options.folder), options.folder / "trials.jsonl"
    while True:
        done = [json.loads(line) for line in trials.read_text().splitlines()]
        if sum(len(trial["kills"]) for trial in done) >= options.n or time.monotonic() > end:
            return report(done)
        stage = options.stages[len(done) % len(options.stages)]
        trial = try_stage(stages, stage, random.Random(f"{options.seed} {len(done)}"))
        with trials.open("a") as file:
            file.write(json.dumps({"stage": stage, **trial}) + "\n")
        print(f"{stage}: {trial}", flush=True)


def open_stages(folder: Path) -> KilledStages:
    """The pipeline of a folder, all of it up to date."""
    lock, expected = folder / "repository/dvc.lock", folder / "expected.lock"
    if not expected.exists():
        if not lock.parent.exists():
            lock.parent.mkdir(parents=True)
            copy = PipelineCopy(lock.parent, shrink)
            copy.change(find_edit("families"))
            copy.change(find_edit("a long update"))
        dvc = [sys.executable, "-m", "dvc"]
        subprocess.run([*dvc, "repro"], cwd=lock.parent, env=make_environment(), check=True)
        (folder / "trials.jsonl").touch()
        shutil.copy(lock, expected)
    mend(lock.parent)
    shutil.copy(expected, lock)  # a part of the sweep may have been cut off
    for scratch in (lock.parent / ".pipe").glob("*@*"):  # folders, and locks
        remove(scratch)
    command = [sys.executable, "-m", "dvc", "checkout", "-q", "-f", "--allow-missing"]
    subprocess.run(command, cwd=lock.parent, env=make_environment(), check=True)
    return KilledStages(SimpleNamespace(path=lock.parent))


def try_stage(stages: KilledStages, stage: str, draw: random.Random) -> dict[str, Any]:
    """Kill a stage at random moments, then let it end: the kills, and what differs."""
    record = stages.path.parent / f"undisturbed-{stage}.json"
    if not record.exists():
        stages.forget(stage)
        begun = time.monotonic()
        output, _ = (process := stages.start(stage)).communicate()
        assert process.returncode == 0, output
        lock = YAML(typ="safe").load(stages.path / "dvc.lock")["stages"]
        content = {
            "seconds": time.monotonic() - begun, "journals": stages.journals(stage),
            "entry": lock[stage],
        }  # fmt: skip
        record.write_text(json.dumps(content))
    undisturbed = json.loads(record.read_text())
    stages.lock[stage] = undisturbed["entry"]
    kills, differs, number = list[str](), "", draw.randint(1, 6)
    stages.forget(stage)
    while len(kills) < number:
        process, share = stages.start(stage), draw.uniform(0.2, 1.0) * 2 / (1 + number)
        after = share * undisturbed["seconds"]
        name = draw.choice(SIGNALS)
        target = draw.choice(TARGETS.get(name, ["all"]))
        try:
            process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            send(process.pid, getattr(signal, name), target, draw)
            kills.append(f"{name} to {target} after {after:.1f} s")
            process.communicate()  # one of its processes may have been of no importance
            wait_for_end(process.pid, 120.0)
            mend(stages.path)
        if process.returncode == 0:
            break
    if process.returncode:
        output, _ = (process := stages.start(stage)).communicate()
        differs = (
            f"exit status {process.returncode}: {output[-2000:]}" if process.returncode else ""
        )
    try:
        stages.compare(stage, "")
        assert stages.journals(stage) == undisturbed["journals"], "journals"
    except (AssertionError, KeyError) as error:
        differs = differs or f"{type(error).__name__}: {error}"
    if differs:  # the next trials need its outputs
        shutil.copy(stages.path.parent / "expected.lock", stages.path / "dvc.lock")
        command = [sys.executable, "-m", "dvc", "checkout", "-q", "-f", "--allow-missing"]
        subprocess.run(command, cwd=stages.path, env=make_environment(), check=True)
    return {"kills": kills, "differs": differs}


def send(group: int, number: int, target: str, draw: random.Random) -> None:
    """Send a signal to the process group of a dvc, to dvc alone, or to one process below it."""
    below = psutil.Process(group).children(recursive=True)
    if target == "all":
        os.killpg(group, number)
    elif target == "dvc" or not below:
        os.kill(group, number)
    else:
        draw.choice(below).send_signal(number)


def report(trials: list[dict[str, Any]]) -> int:
    """Print the number of kills by stage and signal, and the trials that differ."""
    counts = Counter(
        (trial["stage"], kill.split()[0]) for trial in trials for kill in trial["kills"]
    )
    print(f"{'':24}", *(f"{name:>8}" for name in SIGNALS))
    for stage in STAGES:
        print(f"{stage:24}", *(f"{counts[stage, name]:8}" for name in SIGNALS))
    wrong = [trial for trial in trials if trial["differs"]]
    print(f"{counts.total()} kills in {len(trials)} trials, {len(wrong)} with other bits")
    for trial in wrong:
        print(json.dumps(trial, indent=1))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
