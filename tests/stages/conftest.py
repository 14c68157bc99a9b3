"""A tiny DVC repository whose stages use the real runtime; a folder with what stages read."""

from pathlib import Path

import pytest
import stage_inputs
from toy_repo import ToyRepo, make_toy_repo


@pytest.fixture
def toy_repo(tmp_path: Path) -> ToyRepo:
    return make_toy_repo(tmp_path / "toy")


@pytest.fixture(scope="module")
def shared_toy_repo(tmp_path_factory: pytest.TempPathFactory) -> ToyRepo:
    return make_toy_repo(tmp_path_factory.mktemp("shared") / "toy")


@pytest.fixture
def stage_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch_settings: None) -> Path:
    """The working folder, with what every kind of stage reads."""
    stage_inputs.copy_world(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
