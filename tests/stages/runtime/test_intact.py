"""A damaged object of DVC's cache, in a small pipeline that DVC runs; code that was edited."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.runtime import intact

TRACED = "data/code/train.json"
ROOT = Path(__file__).parents[3]
DVC_YAML = """\
stages:
  train:
    cmd: python train.py
    deps: [train.py]
    outs: [data/model]
  evaluate:
    cmd: python evaluate.py
    deps: [evaluate.py, data/model]
    outs: [data/score]
"""
TRAIN = """\
import pathlib
folder = pathlib.Path("data/model/0")
folder.mkdir(parents=True)
(folder / "weights").write_bytes(bytes(range(256)) * 64)
(folder / "config").write_text("small")
with open("trained", "a") as file:
    file.write("x")
"""
EVALUATE = """\
import pathlib
from dvc.repo import Repo
from stages.runtime import intact

with Repo(".") as repo:
    stage = repo.stage.load_one(None, "evaluate")
    stage.save_deps()
    intact.check_inputs(stage)
total = sum(pathlib.Path("data/model/0/weights").read_bytes())
pathlib.Path("data/score").write_text(str(total))
"""
SCORE = str(64 * sum(range(256)))


class Pipeline:
    def __init__(self, path: Path, link: str) -> None:
        self.path = path
        for name, text in {
            "dvc.yaml": DVC_YAML,
            "train.py": TRAIN,
            "evaluate.py": EVALUATE,
        }.items():
            (path / name).write_text(text)
        self.dvc("init", "--no-scm", "-q")
        self.dvc("config", "cache.type", link)
        assert self.repro() == (0, "")

    def dvc(self, *words: str) -> subprocess.CompletedProcess[str]:
        paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {key: item for key, item in os.environ.items() if not key.startswith("DVC_")}
        environment |= {"PATH": paths, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "dvc", *words]
        return subprocess.run(command, cwd=self.path, env=environment, capture_output=True,
                              text=True, check=False)  # fmt: skip

    def repro(self) -> tuple[int, str]:
        done = self.dvc("repro", "-q")
        return done.returncode, done.stderr

    def cached(self, name: str) -> Path:
        """The object of an output's file."""
        md5 = hashlib.md5((self.path / name).read_bytes()).hexdigest()
        return self.path / ".dvc/cache/files/md5" / md5[:2] / md5[2:]

    @property
    def trained(self) -> int:
        """How often the first stage ran."""
        return len((self.path / "trained").read_text())

    def edit_evaluation(self) -> None:
        """So that it is not restored, but has to read the model."""
        (self.path / "evaluate.py").write_text(f"{EVALUATE}# once more\n")

    def remove_outputs(self) -> None:
        """As in another clone, or before another commit's results are restored."""
        for file in sorted((self.path / "data").rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    overwrite(path, bytes(content))


def truncate(path: Path) -> None:
    overwrite(path, path.read_bytes()[:5000])


def overwrite(path: Path, content: bytes) -> None:
    """In place, read-only as before, as a disk would: DVC hashes no object of this mode."""
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(0o444)


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "link"), [(flip, "hardlink"), (truncate, "copy")])
def test_it_is_noticed_before_it_is_used_named_and_computed_again(tmp_path, link, damage):
    pipeline = Pipeline(tmp_path, link)
    damage(pipeline.cached("data/model/0/weights"))
    pipeline.remove_outputs()
    pipeline.edit_evaluation()
    status, said = pipeline.repro()
    assert status != 0
    assert "damaged on disk" in said
    assert "data/model/0/weights" in said
    assert "config" not in said
    assert not (tmp_path / "data/score").exists()
    assert pipeline.trained == 1
    assert pipeline.repro() == (0, "")
    assert pipeline.trained == 2
    assert (tmp_path / "data/score").read_text() == SCORE
    assert pipeline.dvc("status", "-q").returncode == 0


@pytest.mark.slow
def test_where_the_cache_is_whole_the_file_is_restored_from_it(tmp_path):
    pipeline = Pipeline(tmp_path, "copy")
    weights = tmp_path / "data/model/0/weights"
    known = weights.stat()
    flip(weights)
    weights.chmod(known.st_mode)
    os.utime(weights, ns=(known.st_atime_ns, known.st_mtime_ns))  # as a bit that rots
    pipeline.edit_evaluation()
    status, said = pipeline.repro()
    assert status != 0
    assert "data/model/0/weights" in said
    assert pipeline.repro() == (0, "")
    assert pipeline.trained == 1
    assert (tmp_path / "data/score").read_text() == SCORE


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source file that the trace knows."""
    monkeypatch.chdir(tmp_path)
    file = Path("train.py")
    file.write_text("rate = 1\n")
    traced = Path(TRACED)
    traced.parent.mkdir(parents=True)
    traced.write_text(json.dumps({"train.py": hashlib.sha256(b"rate = 1\n").hexdigest()}))
    return file


def test_what_was_not_edited_passes(source: Path) -> None:
    intact.check_sources([TRACED, "data/other/train.jsonl"])
    source.touch()
    intact.check_sources([TRACED])


def test_what_was_edited_or_removed_is_refused_with_the_remedy(source: Path) -> None:
    source.write_text("rate = 2\n")
    with pytest.raises(ValueError, match=r"train\.py was edited after.*`dvc repro` again"):
        intact.check_sources([TRACED])
    source.unlink()
    with pytest.raises(ValueError, match=r"train\.py was edited"):
        intact.check_sources([TRACED])


def test_a_stage_without_a_trace_is_not_checked(source: Path) -> None:
    source.write_text("rate = 2\n")
    intact.check_sources(["data/other/train.jsonl"])
