"""Sweep of kills: every kind of stage, killed at random places; ends where other bits come out.

    cd tests && python -m resume FOLDER -n 200 [--seconds 280] [--seed 0] [--stages train@sft ...]

FOLDER gets a small pipeline of all kinds of stages (pipeline_edits.yaml: `families`, and a policy
whose update takes 30 s), made up to date first. Each trial runs one stage as if it had never run,
kills it up to six times, lets it end, and compares outputs, dvc.lock and journals. How it is killed
follows from the seed and the trial's number. Trials stand in FOLDER/trials.jsonl: the same command
goes on with the next one, so a sweep may be cut in parts of `--seconds`.
"""

import argparse
import json
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

from conftest import shrink
from pipeline_copy import PipelineCopy, find_edit, make_environment
from resume.killed_stages import CHANGES, FAMILIES, SIGNALS, KilledStages, remove

from flows.dvc_internals import mend

STAGES = [*FAMILIES.values(), "train@long"]


def main() -> None:
    """Run the command line; an AssertionError where a stage ends with other bits."""
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
        draw = random.Random(f"{options.seed} {len(done)}")
        folder = options.folder / f"undisturbed-{stage}"
        kills = stages.check(stage, draw.randint(1, 6), draw, folder)
        with trials.open("a") as file:
            file.write(json.dumps({"stage": stage, "kills": kills}) + "\n")
        print(f"{stage}: {kills}", flush=True)


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


def report(trials: list[dict[str, Any]]) -> None:
    """Print the number of kills by stage and by what they were."""
    counts = Counter(
        (trial["stage"], kill.split()[0]) for trial in trials for kill in trial["kills"]
    )
    kinds = (*SIGNALS, *CHANGES)
    print(f"{'':24}", *(f"{kind:>8}" for kind in kinds))
    for stage in STAGES:
        print(f"{stage:24}", *(f"{counts[stage, kind]:8}" for kind in kinds))
    print(f"{counts.total()} kills in {len(trials)} trials, none with other bits")


if __name__ == "__main__":
    main()
