"""Copies of the run in which the pipeline's stages run again, with other settings.

A copy is a folder with the code, its own params.yaml and presets.yaml, and links to what it shares
with the run. Its stages are separate processes, of which DVC knows nothing, so none of their
outputs reaches its cache. In the study's scratch folder, a killed stage resumes with the complete
rows.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dvc.utils.flatten import flatten
from ruamel.yaml import YAML

from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml
from stages.report.stage_metrics import Plan, list_ancestors
from stages.rows import DATA, STAGES

PREPARED = ("prompts", "demonstrations", "prepared", "own", "policies/base")
"""Folders under data/ that every copy shares with the run."""


class Command(NamedTuple):
    """A stage of a copy."""

    entry_point: str
    words: tuple[str, ...]
    output: str
    """Folder under data/ that exists after the stage has run."""
    stage: str
    """DVC's name of the stage."""


def make_row_command(table: str, name: str, row: Mapping[str, Any]) -> Command:
    """Command that makes a row of a table."""
    stage, kind = STAGES[table], row.get("train") or row.get("by")
    entry_point = f"{stage.removeprefix('label_')}_{kind}" if kind else stage
    words = [word for key, value in flatten(row).items() for word in (f"--{key}", str(value))]
    output = f"policies/{name}/model" if table == "policies" else f"{table}/{name}"
    return Command(entry_point, (name, *words), output, f"{stage}@{name}")


def make_sample_command(policy: str) -> Command:
    """Command that samples completions of the dev and test problems."""
    return Command("sample", (policy,), f"samples/{policy}", f"sample@{policy}")


def list_needed_rows(plan: Plan, table: str, name: str) -> list[tuple[str, str]]:
    """(table, name) of every row that a row is made from, and of the row, in order of making."""
    places = [row.partition("/") for row in list_ancestors(plan, f"{table}/{name}")]
    return [(table, name) for table, _, name in places]


@dataclass(frozen=True, kw_only=True, slots=True)
class RepoCopy:
    """A copy of the run."""

    path: Path

    @property
    def data(self) -> Path:
        """Folder of outputs."""
        return self.path / DATA

    def run(self, command: Command) -> None:
        """Run a stage, unless its output exists; a RuntimeError has the end of its error output."""
        if (self.data / command.output).exists():
            return
        variables = {key: value for key, value in os.environ.items() if not key.startswith("DVC_")}
        variables["DVC_STAGE"] = command.stage  # dies with us: runtime/process
        result = subprocess.run(
            [sys.executable, "-m", "stages", command.entry_point, *command.words],
            cwd=self.path, env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if result.returncode != 0:
            raise RuntimeError(f"{command.stage} failed in {self.path}:\n{result.stderr[-3000:]}")


def make_copy(
    path: Path, *, share: Iterable[str] = (), changes: Mapping[str, Any] = MappingProxyType({}),
    presets: Mapping[str, Any] = MappingProxyType({}),
) -> RepoCopy:  # fmt: skip
    """Make a copy of the run, or find the one that an interrupted attempt left.

    Args:
        path: of a folder; its content depends only on the study's inputs.
        share: folders under data/ that are taken from the run, besides `PREPARED`.
        changes: keys of params.yaml with other values.
        presets: entries of presets.yaml to add.
    """
    # Without plan.py no stage asks for a check of the tables, which belong to the run.
    ignored = shutil.ignore_patterns("__pycache__", "plan.py")
    shutil.copytree("stages", path / "stages", ignore=ignored, dirs_exist_ok=True)
    for name, changed in ((PARAMS_PATH, changes), (PRESETS_PATH, presets)):
        with (path / name).open("w", encoding="utf-8") as file:
            YAML(typ="safe").dump(read_yaml(name) | dict(changed), file)
    (path / ".dvc").mkdir(exist_ok=True)  # or a stage would be looked for in the run's repository
    (path / ".dvc/config").write_text("[core]\n    no_scm = True\n", encoding="utf-8")
    for name in (*PREPARED, *share):
        link, source = path / DATA / name, (DATA / name).resolve()
        link.parent.mkdir(parents=True, exist_ok=True)
        if source.exists() and not link.exists():
            link.symlink_to(source)
    return RepoCopy(path=path)
