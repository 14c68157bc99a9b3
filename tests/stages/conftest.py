"""A tiny DVC repository whose stages use the real runtime."""

from pathlib import Path

import pytest
from toy_repo import ToyRepo, make_toy_repo


@pytest.fixture
def toy_repo(tmp_path: Path) -> ToyRepo:
    return make_toy_repo(tmp_path / "toy")


@pytest.fixture(scope="module")
def shared_toy_repo(tmp_path_factory: pytest.TempPathFactory) -> ToyRepo:
    return make_toy_repo(tmp_path_factory.mktemp("shared") / "toy")
