"""A copy has files of its own, and nothing is computed in it that the repository has computed."""

import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows import workspace

RECIPES = "recipes:\n  one: &one {a: 1}\n  two: &two {a: 2}\nplan: *one\n"


def repro(root: Path) -> None:
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=root, check=True)


def read(path: Path) -> dict[str, object]:
    return YAML(typ="safe").load(path)


def test_a_copy_restores_what_the_repository_has_computed(toy_repository: Path) -> None:
    repro(toy_repository)
    copy = toy_repository / ".pipe/compare/tried/seed-3"
    workspace.prepare(toy_repository, copy, seed=3, recipe=None)
    assert read(copy / "params.yaml")["seed"] == 3
    assert "seed" not in read(toy_repository / "params.yaml")
    assert not (copy / "data").exists()
    repro(copy)
    # the log came along, since git would commit it, and no stage added to it
    log = (copy / "started.log").read_text()
    assert log == (toy_repository / "started.log").read_text(), "stages ran"
    restored = (copy / "data/track/out.txt").read_bytes()
    assert restored == (toy_repository / "data/track/out.txt").read_bytes()


def test_what_a_copy_computes_is_restored_in_the_repository(toy_repository: Path) -> None:
    copy = toy_repository / ".pipe/copy"
    workspace.prepare(toy_repository, copy, seed=3, recipe=None)
    repro(copy)
    repro(toy_repository)
    assert (copy / "started.log").exists()
    assert not (toy_repository / "started.log").exists()


def test_preparing_again_brings_edits_and_keeps_results(toy_repository: Path) -> None:
    copy = toy_repository / ".pipe/copy"
    (toy_repository / "old.py").write_text("old")
    workspace.prepare(toy_repository, copy, seed=3, recipe=None)
    repro(copy)
    (toy_repository / "old.py").unlink()
    (toy_repository / "raw.txt").write_text("edited\n")
    lock = (copy / "dvc.lock").read_bytes()
    workspace.prepare(toy_repository, copy, seed=3, recipe=None)
    assert not (copy / "old.py").exists()
    assert (copy / "raw.txt").read_text() == "edited\n"
    assert (copy / "dvc.lock").read_bytes() == lock
    assert (copy / "data/track/out.txt").exists()


def test_the_users_data_and_the_locks_of_the_gpus_are_shared(toy_repository: Path) -> None:
    for name in ("data/raw", ".pipe/gpu"):
        (toy_repository / name).mkdir(parents=True)
    (toy_repository / "data/raw/mine.jsonl").write_text("{}\n")
    copy = toy_repository / ".pipe/copy"
    for _ in range(2):
        workspace.prepare(toy_repository, copy, seed=3, recipe=None)
        assert (copy / "data/raw/mine.jsonl").read_text() == "{}\n"
        assert (copy / ".pipe/gpu").resolve() == (toy_repository / ".pipe/gpu").resolve()


def test_the_plan_becomes_the_recipe_that_is_asked_for(toy_repository: Path) -> None:
    (toy_repository / "recipes.yaml").write_text(RECIPES)
    copy = toy_repository / ".pipe/copy"
    workspace.prepare(toy_repository, copy, seed=3, recipe="two")
    assert read(copy / "recipes.yaml")["plan"] == {"a": 2}
    assert read(toy_repository / "recipes.yaml")["plan"] == {"a": 1}
    with pytest.raises(ValueError, match="no recipe 'three'; it has one, two"):
        workspace.prepare(toy_repository, copy, seed=3, recipe="three")


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="git ls-files"):
        workspace.prepare(tmp_path, tmp_path / "copy", seed=0, recipe=None)
