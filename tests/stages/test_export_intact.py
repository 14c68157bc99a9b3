"""Only what dvc.lock names is exported: a damaged policy is refused, with what to do."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import studied_run

from stages import export
from stages.models.row_policy import TinyConfig, build_tiny
from stages.report import experiment

FOLDER = Path("data/policies/grpo/model")
WEIGHTS = FOLDER / "1/model.safetensors"


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy `grpo` of two seeds, as transformers saves it."""
    folder = tmp_path_factory.mktemp("policies")
    tokenizer = studied_run.words()
    for seed in (0, 1):
        model: Any = build_tiny(TinyConfig(**studied_run.TINY), tokenizer, seed)
        model.save_pretrained(folder / str(seed))
        tokenizer.save_pretrained(folder / str(seed))
    return folder


@pytest.fixture
def digest(policies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The policy in a folder of a run, and its digest."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(policies, FOLDER)
    return experiment.digest_folder(FOLDER)


def write_lock(digest: str) -> None:
    outs = [{"path": "data/policies/grpo/training", "md5": "0.dir"},
            {"path": str(FOLDER), "hash": "md5", "md5": digest}]  # fmt: skip
    content = {"schema": "2.0", "stages": {"train@grpo": {"cmd": "", "outs": outs}}}
    studied_run.write_yaml(Path("dvc.lock"), content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_what_dvc_lock_names_is_whole(digest: str, caplog: pytest.LogCaptureFixture) -> None:
    write_lock(digest)
    export.check_policy("grpo", FOLDER / "1")
    assert not caplog.messages


@pytest.mark.parametrize("has_lock", [True, False])
@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])
def test_weights_that_are_cut_empty_or_missing_are_refused(
    damage: Callable[[Path], None], has_lock: bool, digest: str
) -> None:
    if has_lock:
        write_lock(digest)
    damage(WEIGHTS)
    with pytest.raises(ValueError, match=f"{FOLDER}/1.*expected a .*`dvc checkout {FOLDER}`"):
        export.check_policy("grpo", FOLDER / "1")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", [cut, empty, flip, Path.unlink])
def test_every_file_has_the_content_that_dvc_lock_names(
    damage: Callable[[Path], None], name: str, digest: str
) -> None:
    write_lock(digest)
    damage(FOLDER / "1" / name)
    with pytest.raises(ValueError, match="`dvc repro`"):
        export.check_policy("grpo", FOLDER / "1")


def test_the_command_refuses_before_it_writes(digest: str) -> None:
    row = {"train": "grpo", "preset": "mine", "from": "sft", "on": "rewards/rule"}
    studied_run.write_json(Path("data/plan.json"), {"policies": {"grpo": row}})
    studied_run.write_json(export.METRICS, {})
    studied_run.write_yaml(Path("params.yaml"), {"seeds": [0, 1], "model": {"path": None}})
    Path("stages").mkdir()
    studied_run.write_yaml(Path("stages/presets.yaml"), {"mine": {}})
    write_lock(digest.replace(digest[0], "x"))
    with pytest.raises(ValueError, match=r"as dvc\.lock has it, with the digest x"):
        export.main("grpo", "out", "1")
    assert not Path("out").exists()
