"""A grid of parameters as flow runs, with a real server and two real workers."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from clones import GIT, background, http_status, wait_until

from flows.sweep import expand_grid, name_point


def test_the_points_of_a_grid():
    changes = ["a.b=1,2", "+policies.c.d=x", "seeds=[0,1]", "stages/presets.yaml:e.f=3,4"]
    points = expand_grid(changes)
    assert len(points) == 4
    first = ["a.b=1", "+policies.c.d=x", "seeds=[0,1]", "stages/presets.yaml:e.f=3"]
    assert sorted(points[0]) == sorted(first)
    assert len({name_point(point) for point in points}) == 4


@pytest.mark.parametrize(
    "changes", [["a.b=1", "c.d=0.5"], ["seeds=[0,1]"], ["~a=.."], ["stages/presets.yaml:e.f=x y"]]
)
def test_a_point_has_a_name_that_git_takes_and_no_folder(changes: list[str]):
    name = name_point(changes)
    command = ["git", "check-ref-format", f"refs/{name}"]
    assert subprocess.run(command, check=False).returncode == 0
    assert "/" not in name


@pytest.mark.parametrize("change", ["a", "=3", "a=[1"])
def test_a_change_that_cannot_be_read_is_refused(change: str):
    with pytest.raises(ValueError, match=r"expected|no viable"):
        expand_grid([change])


@pytest.mark.slow
@pytest.mark.rotating
def test_two_workers_run_the_points_side_by_side_in_copies_that_share_a_cache(
    checkout_with_flows: Path, server_environment: dict[str, str], free_port: int, tmp_path: Path
):
    root = checkout_with_flows
    logs = [tmp_path / f"worker{number}.log" for number in range(2)]

    def run(*command: str) -> str:
        result = subprocess.run(
            command,
            cwd=root,
            env=server_environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        endings = [log.read_text()[-3000:] for log in logs if log.exists()]
        assert result.returncode == 0, "\n".join([result.stdout, *endings])
        return result.stdout

    run(sys.executable, "-m", "dvc", "repro", "-q")
    run(*GIT, "add", "-A")
    run(*GIT, "commit", "-qm", "toy")
    lock = (root / "dvc.lock").read_bytes()
    server = f"prefect --no-prompt server start --host 127.0.0.1 --port {free_port}"
    worker = "prefect worker start --pool gpu --limit 1"
    url = server_environment["PREFECT_API_URL"]
    with background(shlex.split(server), root, server_environment, tmp_path / "server.log"):
        wait_until(lambda: http_status(f"{url}/health") == 200, 300, "a server that answers")
        run(*shlex.split("prefect work-pool create gpu --type process"))
        run(*shlex.split("prefect --no-prompt deploy --name sweep"))
        run(sys.executable, "-m", "flows.sweep", "left.sleep=8,9")

        def points() -> list[str]:
            return run(sys.executable, "-m", "dvc", "exp", "list", "--name-only").split()

        with (
            background(shlex.split(worker), root, server_environment, logs[0]),
            background(shlex.split(worker), root, server_environment, logs[1]),
        ):
            wait_until(lambda: len(points()) == 2, 300, "two experiments")
            run(sys.executable, "-m", "flows.sweep", "left.sleep=8")
            again = "left.sleep=8 is there already"
            wait_until(lambda: any(again in log.read_text() for log in logs), 100, again)
    assert sorted(points()) == ["left.sleep=8", "left.sleep=9"]
    for log in logs:  # each worker had a point, in which only what follows from it ran
        text = log.read_text()
        assert "Stage 'prepare' didn't change, skipping" in text
        assert "Running stage 'side@left'" in text
        assert "Running stage 'side@right'" not in text
    assert (root / "dvc.lock").read_bytes() == lock
    table = run(sys.executable, "-m", "flows.experiments")
    assert table.count("left.sleep=") == 2
