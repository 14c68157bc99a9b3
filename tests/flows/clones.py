"""Clones of the toy repository of tests/toy_repo.py that share results by a DVC remote."""

import os
import shutil
import sys
from pathlib import Path

from ruamel.yaml import YAML
from toy_repo import ROOT, ToyRepo, make_toy_repo

COUNTED = 'import os\nwith open(os.environ["TOY_STARTED"], "a") as log:\n'
COUNTED += '    log.write(" ".join(sys.argv[1:]) + "\\n")\n'


class Clones:
    """A repository that counts in one file the stages that any of its clones starts."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.log = folder / "started.log"
        self.origin = make_toy_repo(folder / "origin")
        work = self.origin.path / "work.py"
        marker = "stage = sys.argv[1]\n"
        text = work.read_text()
        assert marker in text
        work.write_text(text.replace(marker, COUNTED + marker))
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "flows", self.origin.path / "flows", ignore=ignore)
        for name in ("prefect.yaml", "prefect.toml"):
            (self.origin.path / name).write_text((ROOT / name).read_text())
        self.origin.run("dvc", "remote", "add", "-d", "results", url)
        self.commit(self.origin)

    def commit(self, repo: ToyRepo) -> None:
        repo.run("git", "add", "-A")
        repo.run("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "more")

    def clone(self, name: str) -> ToyRepo:
        path = self.folder / name
        self.origin.run("git", "clone", "-q", str(self.origin.path), str(path))
        environment = self.origin.environment | {"TOY_STARTED": str(self.log), "NO_COLOR": "1"}
        # DVC keeps here what it knows of a remote; on another machine there is another one.
        environment["DVC_SITE_CACHE_DIR"] = str(path) + ".site"
        return ToyRepo(path, environment)

    def started(self) -> list[str]:
        return sorted(self.log.read_text().split()) if self.log.exists() else []


def local(repo: ToyRepo, *arguments: str, code: int = 0, **extra: str) -> str:
    command = (sys.executable, "-m", "flows.local", "--remote", *arguments)
    return repo.run(*command, code=code, **extra)


def locked(repo: ToyRepo) -> dict[str, object]:
    """The entries of dvc.lock, without what differs at each execution: run records."""
    stages = YAML(typ="safe").load(repo.path / "dvc.lock")["stages"]
    for stage in stages.values():
        for part in ("outs", "deps"):
            stage[part] = [
                one for one in stage.get(part, []) if not one["path"].startswith("data/runs")
            ]
    del stages["track"]  # of run records alone
    return stages


def single_machine(clones: Clones) -> dict[str, object]:
    """What `dvc repro` of a clone of its own writes into dvc.lock."""
    alone = clones.clone("alone")
    alone.run("dvc", "repro", "-q", TOY_STARTED=os.devnull)
    return locked(alone)
