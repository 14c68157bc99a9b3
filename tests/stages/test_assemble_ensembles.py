import copy
import json
import os
import shutil
from pathlib import Path

import presets
import pytest

from stages import assemble_ensembles
from stages.models import ensemble

ENSEMBLES = assemble_ensembles.OUTPUT / "ensembles"
FILES = ("config.json", "model.safetensors", "tokenizer.json")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def plan(*members: tuple[str, str, int]) -> None:
    """params.yaml and models for (entry, ensemble, member number)."""
    content = copy.deepcopy(presets.CONTENT["recipes"]["comparison"])
    shared = content["train_reward_model"]["sft-0"]
    content["train_reward_model"] = {
        entry: dict(shared) | {"ensemble": name, "member": number}
        for entry, name, number in members
    }
    for entry, _, _ in members:
        model = assemble_ensembles.MODELS / entry / "reward_model"
        model.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            (model / file).write_text(f"{file} of {entry}")
    # JSON is YAML; a dump of the latter would sort the entries.
    Path("params.yaml").write_text(json.dumps({"plan": content}))


def written() -> dict[str, str]:
    return {
        path.relative_to(ENSEMBLES).as_posix(): path.read_text()
        for path in ENSEMBLES.rglob("*")
        if path.is_file()
    }


def test_each_ensemble_has_its_members_by_number_whatever_their_names_and_order():
    rows = [("z", "large", 0), ("a", "large", 10), ("b", "large", 2), ("other", "small", 3)]
    plan(*rows)
    assemble_ensembles.main()
    assert written() == {
        f"{name}/{number}/{file}": f"{file} of {entry}"
        for entry, name, number in rows
        for file in FILES
    }
    assert [path.name for path in ensemble.folders(ENSEMBLES / "large")] == ["0", "2", "10"]
    metrics = (assemble_ensembles.OUTPUT / "metrics.json").read_text()
    assert json.loads(metrics) == {"members": {"large": 3, "small": 1}}
    plan(*reversed(rows))
    before = written()
    assemble_ensembles.main()
    assert written() == before
    assert (assemble_ensembles.OUTPUT / "metrics.json").read_text() == metrics


def test_a_member_takes_no_room_of_its_own_and_is_not_a_link_into_dvcs_cache():
    plan(("a", "large", 0))
    model = assemble_ensembles.MODELS / "a/reward_model"
    # As DVC leaves it where the cache is on another file system.
    shutil.move(model / "model.safetensors", "cached")
    (model / "model.safetensors").symlink_to(Path("cached").resolve())
    assemble_ensembles.main()
    found = ENSEMBLES / "large/0"
    assert (found / "config.json").samefile(model / "config.json")
    assert not (found / "model.safetensors").is_symlink()
    assert (found / "model.safetensors").read_text() == "model.safetensors of a"


def test_a_file_system_without_hard_links_gets_copies(monkeypatch):
    def refuse(source, target):
        raise OSError(f"no link from {source} to {target}")

    plan(("a", "large", 0))
    monkeypatch.setattr(os, "link", refuse)
    assemble_ensembles.main()
    model = assemble_ensembles.MODELS / "a/reward_model"
    assert not (ENSEMBLES / "large/0/config.json").samefile(model / "config.json")
    assert set(written()) == {f"large/0/{file}" for file in FILES}


def test_a_plan_without_reward_models_makes_an_empty_folder():
    plan(("a", "large", 0))
    assemble_ensembles.main()
    plan()
    assemble_ensembles.main()
    assert ENSEMBLES.is_dir()
    assert not list(ENSEMBLES.iterdir())


def test_two_members_with_one_number_are_an_error_that_names_both():
    plan(("a", "large", 1), ("b", "large", 1))
    with pytest.raises(ValueError, match=r"ensemble 'large': .* 'a' and 'b' as member 1"):
        assemble_ensembles.main()
    assert not ENSEMBLES.exists()
