"""A copy of this repository in which the whole pipeline can run, small."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import mlflow
from ruamel.yaml import YAML

from stages.tracking import lockfile

ROOT = Path(__file__).parents[1]


Edit = Callable[[dict[str, Any], dict[str, Any]], None]
"""Changes params.yaml and presets.yaml."""
FILES = ("params.yaml", "stages/presets.yaml")


def find_edit(name: str) -> Edit:
    """The edit of that name in pipeline_edits.yaml."""
    row = YAML(typ="safe").load(Path(__file__).with_name("pipeline_edits.yaml"))[name]

    def edit(params: dict[str, Any], presets: dict[str, Any]) -> None:
        for content, section in ((params, "params"), (presets, "presets")):
            for path, value in row.get(section, {}).items():
                *above, key = path.split(".")
                places = [content]
                for part in above:
                    inside = (place.values() if part == "*" else [place[part]] for place in places)
                    places = [item for items in inside for item in items]
                for place in places:
                    if value == "removed":
                        del place[key]
                    else:
                        place[key] = deepcopy(value)

    return edit


def change_params(folder: Path, edit: Edit) -> None:
    """Edit params.yaml and presets.yaml in `folder`; comments and `<<:` stay."""
    yaml = YAML()
    yaml.width = 1000
    contents = [yaml.load(folder / name) for name in FILES]
    edit(*contents)
    for name, content in zip(FILES, contents, strict=True):
        yaml.dump(content, folder / name)


def make_environment() -> dict[str, str]:
    """Ours without settings of tools; the stages' command is `python`, which has to be this one."""
    hidden = ("DVC_", "MLFLOW_", "POSTTRAIN_", "PYTEST_", "RESUME_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return environment | {"PATH": path}


class PipelineCopy:
    """The committed and not ignored files in a new git repository, with other parameters."""

    def __init__(self, path: Path, change: Edit) -> None:
        self.path = path
        for name in self._git(ROOT, "ls-files", "-co", "--exclude-standard").splitlines():
            if name != "dvc.lock" and (ROOT / name).is_file():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, path / name)
        self.change(change)
        self._git(path, "init", "--quiet")
        self._git(path, "add", ".")
        self._git(path, "-c", "user.name=test", "-c", "user.email=@", "commit", "-qm", "copy")

    def change(self, edit: Edit) -> None:
        """Edit params.yaml and presets.yaml."""
        change_params(self.path, edit)

    def switch_on(self, *recipes: str) -> None:
        """Name recipes, and no others, in `vars` of dvc.yaml."""
        path = self.path / "dvc.yaml"
        named = ", ".join(f"stages/recipes/{name}.yaml" for name in recipes)
        path.write_text(re.sub(r"(?m)^vars: .*$", f"vars: [{named}]", path.read_text()))

    def repro(self, *targets: str) -> set[str]:
        """`dvc repro`; the names of the stages that it executed, plan and track among them."""
        output = self.run("-m", "dvc", "repro", *targets)
        return set(re.findall(r"(?m)^Running stage '(.*)':$", output))

    def locked(self) -> dict[str, Any]:
        """Entries of dvc.lock of today's rows, but for plan's, which reads the files whole."""
        stages = YAML(typ="safe").load(self.path / "dvc.lock")["stages"]
        return {name: stages[name] for name in self.records()}

    def records(self) -> dict[str, str]:
        """Id of the execution by stage, of the stages that dvc.lock names."""
        with contextlib.chdir(self.path):
            entries = lockfile.read_entries()
            records = {entry.stage: lockfile.read_record(entry) for entry in entries}
        return {stage: record["execution_id"] for stage, record in records.items() if record}

    def run(self, *arguments: str) -> str:
        """Run Python in the copy; what it printed."""
        result = subprocess.run(
            [sys.executable, *arguments], cwd=self.path, env=make_environment(),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        printed = result.stdout[-3000:] + result.stderr[-5000:]
        assert result.returncode == 0, f"exit status {result.returncode}\n{printed}"
        return result.stdout + result.stderr

    def read(self, name: str) -> Any:
        """A JSON file of the copy."""
        return json.loads((self.path / name).read_text())

    def mlflow_runs(self) -> list[Any]:
        """All runs of the copy's own store."""
        client = mlflow.MlflowClient(f"sqlite:///{self.path}/mlflow.db")
        experiment = client.get_experiment_by_name("posttrain")
        return list(client.search_runs([experiment.experiment_id], max_results=1000))

    @staticmethod
    def _git(path: Path, *arguments: str) -> str:
        command = ["git", "-C", str(path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
