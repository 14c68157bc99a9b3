"""What one clone pushed another fetches whole or not at all; on real DVC repositories."""

import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows import seeds
from flows.lock import list_records, parse_lock
from flows.remote import KEY, RemoteStatus, ResultExchange

pytestmark = pytest.mark.slow

DVC = [sys.executable, "-m", "dvc"]


@pytest.fixture
def remote(toy_repository: Path, tmp_path: Path) -> Path:
    """A folder as the default remote of the toy repository, in which nothing was pushed yet."""
    folder = tmp_path / "remote"
    folder.mkdir()
    subprocess.run(
        [*DVC, "remote", "add", "-q", "-d", "results", str(folder)], cwd=toy_repository, check=True
    )
    return folder


@pytest.fixture
def visit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[Path], ResultExchange]:
    """A repository as its own machine sees it: what DVC remembers of a remote is not shared."""
    for logger in ("dvc", "dvc_data"):  # their handlers hold a stream that pytest has closed
        caplog.set_level(logging.CRITICAL, logger=logger)

    def go(root: Path) -> ResultExchange:
        monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / f"{root.name}.site"))
        monkeypatch.chdir(root)
        return ResultExchange(root)

    return go


def repro(root: Path, *stages: str) -> str:
    command = [*DVC, "repro", *stages]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def other_clone(root: Path, name: str) -> Path:
    """The same files, without anything that was computed."""
    other = root.parent / name
    shutil.copytree(root, other, ignore=shutil.ignore_patterns("data", "cache", "tmp", "*.log"))
    (other / "dvc.lock").unlink(missing_ok=True)
    return other


def test_the_remote_holds_what_dvc_itself_would_write_and_read(
    toy_repository: Path, remote: Path, visit: Callable[[Path], ResultExchange], tmp_path: Path
) -> None:
    repro(toy_repository, "side@left")
    clone = visit(toy_repository)
    for name in ("prepare", "side@left"):
        clone.push(name)
    runs = {
        path.relative_to(remote).as_posix(): YAML(typ="safe").load(path)
        for path in (remote / "runs").rglob("*")
        if path.is_file()
    }
    local = toy_repository / ".dvc/cache"
    assert len(runs) == 2
    assert runs == {name: YAML(typ="safe").load(local / name) for name in runs}
    other = other_clone(toy_repository, "other")
    visit(other)
    subprocess.run([*DVC, "fetch", "-q", "--run-cache"], cwd=other, check=True)
    assert "is cached" in repro(other, "--pull", "side@left")
    assert not (other / "started.log").exists()


def test_a_fetched_result_is_restored_without_running(
    toy_repository: Path,
    remote: Path,
    visit: Callable[[Path], ResultExchange],
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = other_clone(toy_repository, "other")
    assert visit(other).fetch("prepare") is RemoteStatus.ABSENT
    repro(toy_repository, "prepare")
    visit(toy_repository).push("prepare")
    capsys.readouterr()
    assert visit(other).fetch("prepare") is RemoteStatus.DONE
    key = capsys.readouterr().out.split(KEY)[1].strip()
    assert (remote / "runs" / key[:2] / key).is_dir()
    assert "is cached" in repro(other, "prepare")
    assert (other / "dvc.lock").read_text() == (toy_repository / "dvc.lock").read_text()


def test_a_finished_seed_travels_whole_or_not_at_all(
    toy_repository: Path,
    remote: Path,
    visit: Callable[[Path], ResultExchange],
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = other_clone(toy_repository, "other")
    assert seeds.fetch(visit(toy_repository), "prepare", 1) is RemoteStatus.ABSENT
    key = capsys.readouterr().out.split(KEY)[1].strip()
    here, there = (
        root / f".pipe/prepare-{key[:16]}/seed-1/finished" for root in (toy_repository, other)
    )
    (here / "outputs/0").mkdir(parents=True)
    (here / "outputs/0/weights").write_text("of seed 1")
    weights = here / "outputs/0/weights"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    files = {"outputs/0/weights": [weights.stat().st_size, digest]}
    (here / "manifest.json").write_text(json.dumps({"files": files}))
    weights.write_text("damaged")
    seeds.push(visit(toy_repository), "prepare")  # sends nothing
    assert seeds.fetch(visit(other), "prepare", 1) is RemoteStatus.ABSENT
    weights.write_text("of seed 1")
    seeds.push(visit(toy_repository), "prepare")
    assert seeds.fetch(visit(other), "prepare", 0) is RemoteStatus.ABSENT
    assert not there.exists()
    assert seeds.fetch(visit(other), "prepare") is RemoteStatus.ABSENT  # gets all
    assert (there / "outputs/0/weights").read_text() == "of seed 1"
    assert seeds.fetch(visit(other), "prepare", 1) is RemoteStatus.DONE
    shutil.rmtree(there)
    shutil.rmtree(other / ".dvc/cache")
    (weights,) = [path for path in remote.rglob("*") if path.is_file() and path.stat().st_size == 9]
    weights.chmod(0o644)
    weights.write_text("of seed 2")
    assert seeds.fetch(visit(other), "prepare", 1) is RemoteStatus.ABSENT
    assert not there.exists()
    seeds.push(visit(toy_repository), "prepare")
    assert seeds.fetch(visit(other), "prepare", 1) is RemoteStatus.DONE
    (other / "raw.txt").write_text("edited")
    assert seeds.fetch(visit(other), "prepare", 1) is RemoteStatus.ABSENT


def test_run_records_travel_beside_the_result(
    toy_repository: Path, remote: Path, visit: Callable[[Path], ResultExchange]
) -> None:
    other = other_clone(toy_repository, "other")
    repro(toy_repository, "prepare")
    inputs = parse_lock((toy_repository / "dvc.lock").read_bytes(), "dvc.lock")["prepare"].inputs
    names = [
        f"data/runs/prepare/{key[:16]}-{number}" for number, key in enumerate((inputs, "x" * 16))
    ]
    for name in names:
        (toy_repository / name).mkdir(parents=True)
        (toy_repository / name / "run.json").write_text(f'{{"ended": "{name}"}}')
        (toy_repository / name / "journal.jsonl").write_text("{}")
    visit(toy_repository).push("prepare")
    assert visit(other).fetch("prepare") is RemoteStatus.DONE
    assert [record["ended"] for record in list_records(other, "prepare", inputs)] == names[:1]
    assert (other / names[0] / "journal.jsonl").read_text() == "{}"
    assert not (other / names[1]).exists()  # of other inputs
    # An incomplete one is no record, and the next push completes it.
    (remote / "records/prepare" / Path(names[0]).name / "run.json").unlink()
    third = other_clone(toy_repository, "third")
    assert visit(third).fetch("prepare") is RemoteStatus.DONE
    assert list_records(third, "prepare", inputs) == []
    visit(toy_repository).push("prepare")
    fourth = other_clone(toy_repository, "fourth")
    visit(fourth).fetch("prepare")
    assert len(list_records(fourth, "prepare", inputs)) == 1


def test_whatever_is_missing_or_damaged_in_the_remote_nothing_is_restored(
    toy_repository: Path, remote: Path, visit: Callable[[Path], ResultExchange]
) -> None:
    """Every state that a push which ended anywhere could leave, and worse."""
    repro(toy_repository, "prepare")
    visit(toy_repository).push("prepare")
    other = other_clone(toy_repository, "other")
    files = sorted(path for path in remote.rglob("*") if path.is_file())
    assert len(files) == 3  # a file, the folder around it, the entry
    for path in files:
        whole = path.read_bytes()
        for content in (None, b"", whole[: len(whole) // 2], whole[:-3], whole + b"\n- x"):
            path.chmod(0o644)
            path.unlink() if content is None else path.write_bytes(content)
            if content is not None:
                path.chmod(0o444)  # as DVC leaves it, which then believes what it says
            assert visit(other).fetch("prepare") is RemoteStatus.ABSENT, (path, content)
            shutil.rmtree(other / ".dvc/cache", ignore_errors=True)
            visit(toy_repository).push("prepare")  # whoever has it makes it whole again
            assert path.read_bytes() == whole
    assert visit(other).fetch("prepare") is RemoteStatus.DONE


def test_a_push_that_was_killed_leaves_nothing_to_restore_and_is_done_again(
    toy_repository: Path, remote: Path, visit: Callable[[Path], ResultExchange]
) -> None:
    (toy_repository / "raw.txt").write_bytes(os.urandom(2**20).hex().encode() * 64)
    repro(toy_repository, "prepare")
    clone = visit(toy_repository)
    command = [sys.executable, "-c", "from flows.remote import main; main()", "push", "prepare"]
    root = Path(__file__).resolve().parents[2]
    child = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(root)})
    while not any(path.is_file() for path in remote.rglob("*")):
        assert child.poll() is None, "the push ended before anything was in the remote"
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not (remote / "runs").exists()
    other = other_clone(toy_repository, "other")
    assert visit(other).fetch("prepare") is RemoteStatus.ABSENT
    clone = visit(toy_repository)
    clone.push("prepare")
    assert visit(other).fetch("prepare") is RemoteStatus.DONE
    assert "is cached" in repro(other, "prepare")


def test_a_committed_lock_of_a_result_that_nobody_pushed_does_not_hide_one_that_was(
    toy_repository: Path, remote: Path, visit: Callable[[Path], ResultExchange]
) -> None:
    # Both ran the stage, whose output names its process, as a run record does. One committed its
    # dvc.lock, the other pushed its result.
    work = toy_repository / "work.py"
    work.write_text(work.read_text() + '(out / "record").write_text(str(os.getpid()))\n')
    other = other_clone(toy_repository, "other")
    repro(other, "prepare")
    visit(other).push("prepare")
    repro(toy_repository, "prepare")
    third = other_clone(toy_repository, "third")
    shutil.copy(toy_repository / "dvc.lock", third)
    assert visit(third).fetch("prepare") is RemoteStatus.DONE
    assert "is cached" in repro(third, "prepare")
    assert (third / "dvc.lock").read_text() == (other / "dvc.lock").read_text()
    # Had the first pushed too, the committed one would be preferred.
    visit(toy_repository).push("prepare")
    fourth = other_clone(toy_repository, "fourth")
    shutil.copy(toy_repository / "dvc.lock", fourth)
    assert visit(fourth).fetch("prepare") is RemoteStatus.DONE
    assert "is cached" in repro(fourth, "prepare")
    assert (fourth / "dvc.lock").read_text() == (toy_repository / "dvc.lock").read_text()


def test_the_newest_of_two_results_here_may_be_gone(
    toy_repository: Path, remote: Path, visit: Callable[[Path], ResultExchange]
) -> None:
    # DVC alone looks at the newest entry of its run cache and at no other.
    work = toy_repository / "work.py"
    work.write_text(work.read_text() + '(out / "record").write_text(str(os.getpid()))\n')
    repro(toy_repository, "prepare")
    visit(toy_repository).push("prepare")
    first = (toy_repository / "dvc.lock").read_text()
    repro(toy_repository, "-f", "prepare")
    assert (toy_repository / "dvc.lock").read_text() != first
    for path in ("data", ".dvc/cache/files"):
        shutil.rmtree(toy_repository / path)
    assert visit(toy_repository).fetch("prepare") is RemoteStatus.DONE
    assert "is cached" in repro(toy_repository, "prepare")
    assert (toy_repository / "dvc.lock").read_text() == first


def test_what_dvc_keeps_no_run_cache_of_is_run_everywhere(
    toy_repository: Path, remote: Path, visit: Callable[[Path], ResultExchange]
) -> None:
    text = (toy_repository / "dvc.yaml").read_text()
    uncached = text.replace("outs: [data/prepare]", "outs: [{data/prepare: {cache: false}}]")
    (toy_repository / "dvc.yaml").write_text(uncached)
    clone = visit(toy_repository)
    assert clone.fetch("prepare") is RemoteStatus.NOT_SHARED
    repro(toy_repository, "prepare")
    clone.push("prepare")
    assert list(remote.rglob("*")) == []
