"""A copy of the study of a pretrained model, in which a cut of it can run."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from pipeline_copy import ROOT, Edit, change_params

FOLDER = ROOT / "studies/smollm2"


def load_run() -> Any:
    """The study's `run.py` as a module."""
    spec = importlib.util.spec_from_file_location("smollm2_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class StudyCopy:
    """The study in a new git repository, with the links of its folder."""

    def __init__(self, root: Path, svamp: Iterable[dict], gsm8k: Iterable[dict]) -> None:
        ignored = shutil.ignore_patterns("__pycache__", "data", ".pipe", "cache", "tmp", "dvc.lock")
        for name in ("stages", "studies", ".dvc"):
            shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=ignored)
        for name in ("dvc.yaml", "params.yaml", ".dvcignore", "constraints.txt"):
            shutil.copy(ROOT / name, root / name)
        subprocess.run(["git", "init", "--quiet", root], check=True)
        self.path = root / FOLDER.relative_to(ROOT)
        raw = self.path / "data/raw"
        raw.mkdir(parents=True)
        for name, rows in (("svamp", svamp), ("gsm8k", gsm8k)):
            load_run().write_rows(raw / f"{name}.jsonl", iter(rows))

    def change(self, edit: Edit) -> None:
        """Edit study.yaml and presets.yaml."""
        shutil.move(self.path / "study.yaml", self.path / "params.yaml")
        change_params(self.path, edit)
        shutil.move(self.path / "params.yaml", self.path / "study.yaml")

    def run(self, *words: str, folder: Path | None = None, stdout: int | IO | None = None) -> str:
        """Run Python in the study's folder; its standard output where `stdout` is a pipe."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DVC_")}
        # The stages' command is `python`: it has to be this one.
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        completed = subprocess.run(
            [sys.executable, *words], cwd=folder or self.path, env=environment, check=True,
            text=True, stdout=stdout,
        )  # fmt: skip
        return completed.stdout or ""
