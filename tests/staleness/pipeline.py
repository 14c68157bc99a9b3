"""A copy of the repository in which DVC holds every stage of the pipeline and the studies for done.

No stage has run: each output is a stand-in that DVC takes as it is, and trace_code's are
its own. So `dvc status` of a changed copy names what the change reaches directly, in seconds; the
same follows at once from the dependencies that DVC has read (`Dependencies`).
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvc.dependency import ParamsDependency
from dvc.repo import Repo
from pipeline_copy import Edit, PipelineCopy

from stages import plan_checks
from stages.config import PRESET
from stages.rows import TABLES

PLANNING = frozenset({"plan", "trace_code"})
"""They look at the rows, parameters and files of all stages, so every change makes them stale."""
TRACES = ("data/code/", "data/own/", "data/studies/trace_code/")
"""Where trace_code writes the digests of source files, which change with them."""


@dataclass(frozen=True)
class Dependencies:
    """What DVC compares of a stage when it looks whether the stage is stale."""

    files: frozenset[str]
    """Files and folders; in place of a trace the source files in it."""
    keys: Mapping[str, tuple[str, ...]]
    """File of parameters -> keys in it."""

    def have(self, file: str) -> bool:
        return any(f"{file}/".startswith(f"{each}/") for each in self.files)

    def differ(self, path: str, before: Any, after: Any) -> bool:
        """Whether one content of a file of parameters has another value of a key than another.

        Or is another at all, for a stage that reads the whole file.
        """
        keys = self.keys.get(path, ())
        is_other = self.have(path) and before != after
        return is_other or any(find(before, key) != find(after, key) for key in keys)


def find(content: Any, key: str) -> Any:
    """The value of a key with dots; None: there is none."""
    for name in key.split("."):
        content = content.get(name) if isinstance(content, Mapping) else None
    return content


class DonePipeline:
    """The copy; every change of it is undone."""

    def __init__(self, path: Path, change: Edit) -> None:
        self.copy = PipelineCopy(path, change)
        self.path = path
        (path / "data/raw").mkdir(parents=True, exist_ok=True)
        (path / "data/raw/people.jsonl").write_text("{}\n")
        self.copy.run("-m", "dvc", "config", "core.autostage", "false")
        self.is_traced = True
        self.trace()
        self.copy.run("-c", "from studies.__main__ import add_stages; add_stages(['all'])")
        with Repo(str(path)) as repo:
            for stage in repo.index.stages:
                for out in stage.outs:
                    file = path / out.def_path
                    if out.metric or file.suffix:
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_text(json.dumps({"of": out.def_path}))
                    elif not file.exists():
                        file.mkdir(parents=True)
                        (file / "content").write_text(out.def_path)
        for table in TABLES:  # those without rows have a folder too, which `plan` makes
            (path / "data" / table).mkdir(exist_ok=True)
            (path / "data" / table / ".no-rows").touch()
        self.lock()
        assert (stale := self.stale()) == {}, stale

    def lock(self) -> None:
        """`dvc commit --force`, without the memory of former runs: a third of its time."""
        with Repo(str(self.path)) as repo, repo.lock:
            of_file = defaultdict[str, list[Any]](list)
            for stage in repo.index.stages:
                stage.save(run_cache=False)
                stage.commit(relink=False)
                of_file[stage.path].append(stage)
            for stages in of_file.values():
                stages[0].dvcfile.dump_stages(stages, update_pipeline=False)

    def trace(self) -> None:
        for package in ("stages", "studies"):
            self.copy.run("-m", f"{package}.trace_code")

    def stale(self) -> dict[str, Any]:
        """Stage -> why DVC would run it again; trace_code runs first, as in `dvc repro`."""
        if not self.is_traced:
            self.trace()
            self.is_traced = True
        with Repo(str(self.path)) as repo:
            result = repo.status()
        named = {name.rpartition(":")[2]: why for name, why in result.items()}
        return {name: why for name, why in named.items() if name not in PLANNING}

    def dependencies(self) -> dict[str, Dependencies]:
        """Stage -> what DVC has read of it in dvc.yaml, and traces; without `PLANNING`."""
        result: dict[str, Dependencies] = {}
        with Repo(str(self.path)) as repo:
            for stage in repo.index.stages:
                files, keys = set[str](), dict[str, tuple[str, ...]]()
                for dep in stage.deps:
                    path = Path(dep.fs_path).relative_to(self.path).as_posix()
                    if isinstance(dep, ParamsDependency):
                        keys[path] = tuple(dep.params)
                    elif f"{path}/".startswith(TRACES):
                        file = self.path / path
                        for trace in [file] if file.is_file() else file.rglob("*.json"):
                            files |= json.loads(trace.read_text()).keys()
                    else:
                        files.add(path)
                result[stage.name] = Dependencies(frozenset(files), keys)
        return {name: each for name, each in result.items() if name not in PLANNING}

    def commands(self) -> dict[str, str]:
        """Stage -> what it runs, templates resolved; without `PLANNING`."""
        with Repo(str(self.path)) as repo:
            result = {stage.name: stage.cmd for stage in repo.index.stages}
        # the check before it is the same for all
        return {
            name: command.splitlines()[-1]
            for name, command in result.items()
            if name not in PLANNING
        }

    @contextmanager
    def changed(self, name: str, edit: Callable[[Path], object]) -> Iterator[None]:
        """A file as `edit` leaves it."""
        path = self.path / name
        before = path.read_bytes()
        edit(path)
        is_source = name.startswith(("stages/", "studies/"))
        self.is_traced = self.is_traced and not is_source
        try:
            yield
        finally:
            path.write_bytes(before)
            self.is_traced = self.is_traced and not is_source


# A row for every preset, so that DVC watches each.

TABLE = {"train": "policies", "label": "pairs", "steps": "steps", "reward": "rewards",
         "environment": "environments"}  # fmt: skip
KIND = dict.fromkeys(TABLE.values(), "by") | {"policies": "train"}
FILES = "raw/people.jsonl"
LEARN_FROM = {
    "train_sft": "demonstrations", "train_dpo": "pairs/verifier", "train_grpo": "rewards/rule",
    "train_ppo": "rewards/preference", "label_people": FILES, "steps_people": FILES,
    "reward_preference": "pairs/verifier", "reward_process": "steps/sft", "reward_rule": "prompts",
}  # fmt: skip
"""What a stage of each kind may learn from; the others: a pool."""


def add_rows(
    content: dict[str, Any], presets: Mapping[str, Any], entry_points: plan_checks.EntryPoints
) -> None:
    """Add a row of each preset that no row has."""
    used = {row.get(PRESET) for table in TABLE.values() for row in content[table].values()}
    for preset, entry in presets.items():
        if preset in used:
            continue
        names = [name for name in entry_points if plan_checks.fits(entry_points[name], entry)]
        name = "environment_own" if "environment_own" in names else names[0]
        assert len({entry_points[other] for other in names}) == 1, preset
        stage, _, kind = name.partition("_")
        table = TABLE[stage]
        on = LEARN_FROM.get(name, "pools/sft")
        if table == "rewards" and "own" in entry.get("components", {}):
            on = "own/brevity"
        if table == "environments":
            on = "own/calculator"
        kind = "own/brevity" if name == "label_own" else kind
        content[table][preset] = {KIND[table]: kind, PRESET: preset, "from": "sft", "on": on}
