"""A zip of the repository, as `git archive` and hosts of repositories make it, works with DVC."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GIT = ["git", "-c", "user.name=a", "-c", "user.email=@"]
CONFIG = ".dvc/config"


@pytest.mark.slow
def test_dvc_needs_no_git_in_a_zip_and_uses_it_in_a_checkout(tmp_path: Path) -> None:
    checkout, unpacked = tmp_path / "checkout", tmp_path / "unpacked"
    (checkout / ".dvc").mkdir(parents=True)
    for name in (CONFIG, ".gitattributes"):
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "dvc.yaml").write_text("stages: {a: {cmd: touch a, outs: [a]}}\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*GIT, *words], cwd=checkout, check=True)
    archive = tmp_path / "all.zip"
    subprocess.run([*GIT, "archive", "-o", str(archive), "HEAD"], cwd=checkout, check=True)
    shutil.unpack_archive(archive, unpacked)
    dvc = [sys.executable, "-m", "dvc"]
    subprocess.run([*dvc, "repro", "-q"], cwd=unpacked, check=True)
    assert (unpacked / "dvc.lock").is_file()
    subprocess.run([*dvc, "repro", "-q"], cwd=checkout, check=True)
    assert (checkout / ".gitignore").read_text() == "/a\n"  # which DVC writes for git alone
    assert not (unpacked / ".gitignore").exists()
