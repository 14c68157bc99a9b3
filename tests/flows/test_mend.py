"""What a kill of DVC leaves, and later commands would fail at."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.dvc_internals import mend

GIT = ["git", "-c", "user.name=a", "-c", "user.email=@"]
LOCK = "schema: '2.0'\nstages:\n  a:\n    cmd: {}\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A DVC repository of a git repository with a commit."""
    (tmp_path / "dvc.lock").write_text(LOCK.format("one"))
    for command in (
        [*GIT, "init", "-qb", "main"], [sys.executable, "-m", "dvc", "init", "-q"],
        [*GIT, "add", "."], [*GIT, "commit", "-qm", "one"],
    ):  # fmt: skip
        subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path


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


def test_a_merge_conflict_is_no_kill_and_stays_until_its_user_takes_a_side(
    repository: Path,
) -> None:
    lock = repository / "dvc.lock"

    def git(*words: str) -> int:
        return subprocess.run([*GIT, *words], cwd=repository, check=False).returncode

    for branch, command in (("theirs", "two"), ("main", "three")):
        git("checkout", "-q", *(["-b"] if branch == "theirs" else []), branch)
        lock.write_text(LOCK.format(command))
        git("commit", "-qam", command)
    assert git("merge", "-q", "theirs") != 0
    conflict = lock.read_text()
    with pytest.raises(ValueError, match=r"between HEAD and theirs: take one side"):
        mend(repository)
    assert lock.read_text() == conflict
    git("checkout", "-q", "--theirs", "dvc.lock")
    mend(repository)
    assert lock.read_text() == LOCK.format("two")


def test_a_cut_lock_is_whole_again_or_as_it_was_while_the_disk_is_full(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = repository / "dvc.lock"
    cut = LOCK.format("two")[:-9]
    lock.write_text(cut)

    def write_bytes(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", write_bytes)
        with pytest.raises(OSError, match="No space left"):
            mend(repository)
    assert lock.read_text() == cut
    mend(repository)
    assert lock.read_text() == LOCK.format("one")
    assert [path.name for path in repository.glob(".dvc.lock*")] == []


def test_without_git_a_cut_lock_begins_empty(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], cwd=tmp_path, check=True
    )
    (tmp_path / "dvc.lock").write_text(LOCK.format("two")[:-9])
    mend(tmp_path)
    assert not (tmp_path / "dvc.lock").exists()


@pytest.mark.parametrize("package", ["flows", "stages"])
def test_a_user_without_an_account_has_a_name_for_dvc(package: str) -> None:
    program = (
        "import pwd\n"
        "def getpwuid(number): raise KeyError(number)\n"
        "pwd.getpwuid = getpwuid\n"
        f"import {package}, getpass\n"
        "print(getpass.getuser())\n"
    )
    names = {"USER", "LOGNAME", "LNAME", "USERNAME"}
    environment = {key: value for key, value in os.environ.items() if key not in names}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{os.getuid()}\n"
