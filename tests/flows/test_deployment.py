"""The schedule of flows/README.md, word for word, with a real server and a real worker."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clones import http_status, wait_until
from ruamel.yaml import YAML

from flows.process import kill_tree

REPOSITORY = Path(__file__).resolve().parents[2]
README_COMMANDS = [
    "prefect server start --host 127.0.0.1 --port 4200",
    "prefect work-pool create gpu --type process",
    "prefect --no-prompt deploy --name nightly",
    "prefect worker start --pool gpu --limit 1",
    "prefect deployment run pipeline/nightly --watch",
]


@contextmanager
def background(command: list[str], root: Path, env: dict[str, str], log: Path) -> Iterator[None]:
    """A process that is killed, with all it started, at the end."""
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=root, env=env, stdout=output, stderr=output)
        try:
            yield
        finally:
            kill_tree(process.pid, grace_seconds=3.0)
            process.wait()


@pytest.mark.slow
def test_server_pool_deployment_worker_and_trigger(
    checkout_with_flows: Path,
    server_environment: dict[str, str],
    free_port: int,
    started: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    root = checkout_with_flows
    url = server_environment["PREFECT_API_URL"]
    commands = [shlex.split(line.replace("4200", str(free_port))) for line in README_COMMANDS]
    server, create_pool, deploy, worker, trigger = commands

    def run(command: list[str]) -> str:
        result = subprocess.run(
            command,
            cwd=root,
            env=server_environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
        )
        logs = [path.read_text()[-3000:] for path in tmp_path.glob("*.log")]
        assert result.returncode == 0, "\n".join([result.stdout, *logs])
        return result.stdout

    with background(server, root, server_environment, tmp_path / "server.log"):
        wait_until(lambda: http_status(f"{url}/health") == 200, 300, "a server that answers")
        assert http_status(f"{url}/admin/settings") == 401, "the API must ask for the password"
        run(create_pool)
        run(deploy)
        # PWD still names the folder in which pytest was started: it must not count
        inspected = run(
            ["prefect", "deployment", "inspect", "pipeline/nightly", "--output", "json"]
        )
        steps = json.loads(inspected)["pull_steps"]
        assert [next(iter(step.values()))["directory"] for step in steps] == [str(root.resolve())]
        with background(worker, root, server_environment, tmp_path / "worker.log"):
            output = run(trigger)
        assert "Flow run finished successfully in 'Completed'" in output
        assert sorted(started()) == ["left", "prepare", "right", "track"]
        assert "4 executed" in (tmp_path / "worker.log").read_text()
        schedules = run(["prefect", "deployment", "schedule", "ls", "pipeline/nightly"])
        assert "0 2 * * *" in schedules
        assert "False" in schedules, "the nightly schedule is off until someone turns it on"
    lock = YAML(typ="safe").load(root / "dvc.lock")
    assert sorted(lock["stages"]) == ["prepare", "side@left", "side@right", "track"]


def test_readme_shows_the_commands_that_are_tested() -> None:
    readme = (REPOSITORY / "flows/README.md").read_text(encoding="utf-8")
    assert [line for line in README_COMMANDS if line not in readme] == []


def test_nothing_of_this_machine_is_committed_in_the_deployment() -> None:
    text = (REPOSITORY / "prefect.yaml").read_text()
    assert str(REPOSITORY) not in text
    assert str(Path(sys.executable).parent) not in text


def test_the_job_of_a_batch_queue_is_right_in_syntax_and_refuses_no_stage() -> None:
    script = str(REPOSITORY / "flows/slurm.sh")
    subprocess.run(["bash", "-n", script], check=True)
    result = subprocess.run(["bash", script], check=False, capture_output=True, text=True)
    assert result.returncode == 1
    assert "name a stage" in result.stderr


def test_readme_shows_the_work_pools_that_are_deployed() -> None:
    readme = (REPOSITORY / "flows/README.md").read_text(encoding="utf-8")
    content = YAML(typ="safe").load(REPOSITORY / "prefect.yaml")
    pools = {
        deployment["name"]: deployment["work_pool"]["name"]
        for deployment in content["deployments"]
        if deployment["entrypoint"] == "flows/agents.py:stage"
    }
    assert pools == {"cpu": "cpu", "gpu": "gpu"}
    assert "prefect --no-prompt deploy " + " ".join(f"--name {pool}" for pool in pools) in readme
