"""Remove the scratch folders of runs whose inputs were edited since.

    python -m stages.runtime.clean --dry-run    list them, with size and the days since their start
    python -m stages.runtime.clean              remove them

Folders that a stage with its present inputs resumes from stay, and all folders of a stage that
runs. Each start of a stage removes its folders of other inputs, except the last two.
"""

import argparse
import fcntl
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from stages.runtime import identity, process
from stages.runtime.outputs import PIPE


def main(*words: str) -> None:
    """List or remove the folders, with a line for each."""
    parser = argparse.ArgumentParser(
        prog="posttrain clean", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only list them")
    options = parser.parse_args(words)
    num_bytes = 0
    for name in sorted({folder.name[:-17] for folder in identity.find_folders()}):
        num_bytes += clean_stage(name, is_dry=options.dry_run)
    verb = "can be removed" if options.dry_run else "removed"
    print(f"{num_bytes / 2**30:.2f} GiB {verb}")  # noqa: T201


def clean_stage(name: str, *, is_dry: bool) -> int:
    """Remove the abandoned folders of a stage, locked for runs meanwhile; returns their bytes."""
    with (PIPE / f"{name}.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{name} runs: all of it is kept")  # noqa: T201
            return 0
        folders = identity.find_folders(name)
        executions = [identity.read_execution(folder / identity.EXECUTION) for folder in folders]
        stage = next((execution.stage for execution in executions if execution), name)
        key = identity.find_present_key(stage)
        # If an input is missing, the newest may belong to it once it is made again.
        kept = folders[0].name if key is None else f"{name}-{key[:16]}"
        total = 0
        for folder in [folder for folder in folders if folder.name != kept]:
            with suppress(FileNotFoundError):  # the start of another stage sweeps, too
                num_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                days = (time.time() - folder.stat().st_mtime) / 86_400
                print(f"{folder}  {num_bytes / 2**30:.2f} GiB  {days:.1f} days")  # noqa: T201
                if not is_dry:
                    shutil.rmtree(folder)
                total += num_bytes
        return total


if __name__ == "__main__":
    if not Path("dvc.yaml").is_file():
        sys.exit("expected a checkout with a dvc.yaml here, found none: cd into yours")
    process.run(main)
