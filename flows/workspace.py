"""A copy of the repository for another seed: files of its own, the same cache."""

import shutil
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from flows.gather import synchronised
from flows.process import child_environment

KEPT = (".dvc", ".pipe", "data", "dvc.lock")
"""What a copy holds of its own, and keeps when it is brought up to date."""
LEFT_OUT = ("tests/", ".dvc/", "dvc.lock")
"""What no stage reads, or what is a copy's own."""


def prepare(root: Path, copy: Path, *, seed: int, recipe: str | None) -> None:
    """Bring the copy's sources and parameters up to those of `root`, with a seed of its own.

    The files are those that git would commit, as they are. The cache is that of `root`, so what
    either has computed from the same inputs is restored in the other; `data/raw` and the locks of
    the GPUs are shared too.

    Args:
        root: the repository.
        copy: its folder; made where there is none.
        seed: takes the place of `seed` in params.yaml.
        recipe: takes the place of `plan` in recipes.yaml; None: the plan stays.

    Raises:
        ValueError: `root` is no git repository with a DVC cache, or has no such recipe.
    """
    names = listed(["git", "ls-files", "-co", "--exclude-standard"], root)
    (cache,) = listed([sys.executable, "-m", "dvc", "cache", "dir"], root)
    copy.mkdir(parents=True, exist_ok=True)
    for old in copy.iterdir():
        if old.name not in KEPT:
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    for name in names:
        if not name.startswith(LEFT_OUT) and (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, copy / name)
    (copy / ".dvc").mkdir(exist_ok=True)
    shutil.copyfile(root / ".dvc/config", copy / ".dvc/config")
    # Git ignores the folder of the copies, and DVC would refuse a pipeline that git ignores.
    local = f"[core]\n    no_scm = true\n[cache]\n    dir = {cache}\n"
    (copy / ".dvc/config.local").write_text(local, encoding="utf-8")
    for shared in ("data/raw", ".pipe/gpu"):
        share(root / shared, copy / shared)
    editor = YAML(typ="rt")
    params = editor.load(copy / "params.yaml")
    params["seed"] = seed
    editor.dump(params, copy / "params.yaml")
    if recipe is not None:
        plan(copy / "recipes.yaml", recipe)
    dvc_yaml = copy / "dvc.yaml"
    exact = synchronised(dvc_yaml.read_text(encoding="utf-8"), copy)
    dvc_yaml.write_text(exact, encoding="utf-8")


def plan(recipes: Path, name: str) -> None:
    """Make `plan` the recipe of this name.

    Raises:
        ValueError: there is none.
    """
    editor = YAML(typ="rt")
    content = editor.load(recipes)
    if name not in content["recipes"]:
        known = ", ".join(content["recipes"])
        raise ValueError(f"recipes.yaml has no recipe '{name}'; it has {known}")
    content["plan"] = content["recipes"][name]
    editor.dump(content, recipes)


def share(folder: Path, link: Path) -> None:
    """Let `link` stand for the folder of the repository, if it is there."""
    if folder.is_dir() and not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder.resolve(), target_is_directory=True)


def listed(command: list[str], root: Path) -> list[str]:
    """The lines that a command prints.

    Raises:
        ValueError: it failed.
    """
    environment = child_environment(Path(sys.executable))
    result = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise ValueError(f"`{' '.join(command)}` failed in {root}:\n{result.stderr.strip()}")
    return result.stdout.splitlines()
