"""What a kill of DVC leaves, and later commands would fail at."""

import subprocess
import sys

from flows.dvc_internals import mend


def test_a_folder_of_the_run_cache_without_its_entry_goes_and_others_stay(tmp_path):
    command = [sys.executable, "-m", "dvc", "init", "--no-scm", "-q"]
    subprocess.run(command, cwd=tmp_path, check=True)
    empty, filled = (tmp_path / ".dvc/cache/runs/ab" / f"ab{name}" for name in ("empty", "filled"))
    for folder in (empty, filled):
        folder.mkdir(parents=True)
    (filled / "entry").write_text("cmd: x\n")
    mend(tmp_path)
    assert not empty.exists()
    assert (filled / "entry").read_text() == "cmd: x\n"
