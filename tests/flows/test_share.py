"""Clones that share a remote: computed once, waited for, and given up with everything kept."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clones import AWS, Clones, make_bucket, s3_server, starts

WAITING = "the DVC remote does not answer"
HASTY = {"POSTTRAIN_REMOTE_SECONDS": "3"}


@pytest.fixture
def clones(checkout_with_flows: Path) -> Clones:
    return Clones(checkout_with_flows)


@pytest.mark.slow
def test_a_folder_that_is_gone_for_a_while_is_waited_for(clones: Clones, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    clones.share(str(remote))
    first, two = clones.clone("one"), clones.clone("two")
    assert "1 executed" in first.flow("prepare")
    # It was run before anything was shared. Now it is pushed, though nothing is run.
    away = remote.rename(tmp_path / "away")
    said = first.flow_until("--remote", "prepare", says=WAITING, then=lambda: away.rename(remote))
    assert "1 skipped" in said
    assert f"does not answer: FileNotFoundError: there is no folder {remote}; waiting" in said
    said = two.flow("--remote", "side@left")
    assert "1 executed, 1 restored" in said
    assert "1 restored, 1 skipped" in first.flow("--remote", "side@left")
    assert starts(first, two) == {"prepare": 1, "left": 1}
    assert (first.path / "dvc.lock").read_text() == (two.path / "dvc.lock").read_text()


@pytest.mark.slow
def test_a_folder_that_is_gone_for_good_ends_the_run_and_nothing_is_lost(
    clones: Clones, tmp_path: Path
) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    clones.share(str(remote))
    clone = clones.clone("one")
    # It goes while the stage runs: the stage itself removes it.
    work = clone.path / "work.py"
    work.write_text(f"import shutil\nshutil.rmtree('{remote}')\n" + work.read_text())
    said = clone.flow("--remote", "prepare", code=1, **HASTY)
    assert "1 failed" in said
    words = " ".join(said.replace("│", " ").split())
    assert "no push by the DVC remote for" in words
    assert "everything here is kept" in words
    assert not remote.exists(), "DVC would have made an empty folder where a disk is not mounted"
    assert (clone.path / "data/prepare/out.txt").exists()
    shutil.rmtree(clone.path / "data")
    assert "1 restored" in clone.flow("prepare")
    assert starts(clone) == {"prepare": 1}


@pytest.mark.slow
def test_s3_gives_a_clone_what_another_made_also_after_an_outage(
    clones: Clones, free_port: int
) -> None:
    clones.environment |= AWS
    with s3_server(free_port):
        make_bucket(free_port, "results")
        clones.share("s3://results/toy", endpointurl=f"http://127.0.0.1:{free_port}")
        first, two = clones.clone("one"), clones.clone("two")
        assert "1 executed" in first.flow("--remote", "prepare")
    again = s3_server(free_port)
    said = two.flow_until("--remote", "prepare", says=WAITING, then=again.__enter__)
    again.__exit__(None, None, None)
    assert "1 restored" in said
    assert f"{WAITING}: EndpointConnectionError" in said
    assert starts(first, two) == {"prepare": 1}
    assert (first.path / "dvc.lock").read_text() == (two.path / "dvc.lock").read_text()


def test_without_a_remote_the_flag_says_what_to_do(checkout_with_flows: Path) -> None:
    command = [sys.executable, "-m", "flows.local", "--remote", "prepare"]
    result = subprocess.run(
        command, cwd=checkout_with_flows, check=False, capture_output=True, text=True
    )
    assert result.returncode == 1
    assert "dvc remote add -d" in " ".join(result.stdout.replace("│", " ").split())
    assert not (checkout_with_flows / "data").exists()
