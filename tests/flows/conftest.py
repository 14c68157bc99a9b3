"""One toy DVC repository, run once a session and copied."""

from pathlib import Path

import pytest
from toy_repo import ToyRepo, copy_repo, make_flow_toy


@pytest.fixture(scope="session")
def finished_toy(tmp_path_factory: pytest.TempPathFactory) -> ToyRepo:
    """A toy in which `dvc repro` has run: not to be changed."""
    toy = make_flow_toy(tmp_path_factory.mktemp("toy") / "checkout")
    toy.repro("-q")
    return toy


@pytest.fixture
def toy(finished_toy: ToyRepo, tmp_path: Path) -> ToyRepo:
    """A copy of it."""
    return copy_repo(finished_toy, tmp_path / "checkout")


@pytest.fixture
def new_toy(tmp_path: Path) -> ToyRepo:
    """A toy in which nothing has run."""
    return make_flow_toy(tmp_path / "checkout")
