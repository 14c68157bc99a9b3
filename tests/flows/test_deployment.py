"""The schedule of flows/README.md, word for word, with a real server and a real worker."""

import json
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
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


def status_of(url: str) -> int:
    """HTTP status; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.slow
def test_server_pool_deployment_worker_and_trigger(
    checkout_with_flows: Path,
    prefect_environment: dict[str, str],
    free_port: int,
    started: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    root = checkout_with_flows
    url = f"http://127.0.0.1:{free_port}/api"
    environment = {
        **prefect_environment,
        "PREFECT_API_URL": url,
        "PREFECT_SERVER_API_AUTH_STRING": "admin:of-this-test",
        "PREFECT_API_AUTH_STRING": "admin:of-this-test",
    }
    commands = [shlex.split(line.replace("4200", str(free_port))) for line in README_COMMANDS]
    server, create_pool, deploy, worker, trigger = commands

    def run(command: list[str]) -> str:
        result = subprocess.run(
            command,
            cwd=root,
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
        )
        logs = [path.read_text()[-3000:] for path in tmp_path.glob("*.log")]
        assert result.returncode == 0, "\n".join([result.stdout, *logs])
        return result.stdout

    with background(server, root, environment, tmp_path / "server.log"):
        deadline = time.monotonic() + 300
        while status_of(f"{url}/health") != 200:
            assert time.monotonic() < deadline, (tmp_path / "server.log").read_text()
            time.sleep(0.3)
        assert status_of(f"{url}/admin/settings") == 401, "the API must ask for the password"
        run(create_pool)
        run(deploy)
        # PWD still names the folder in which pytest was started: it must not count
        inspected = run(
            ["prefect", "deployment", "inspect", "pipeline/nightly", "--output", "json"]
        )
        steps = json.loads(inspected)["pull_steps"]
        assert [next(iter(step.values()))["directory"] for step in steps] == [str(root.resolve())]
        with background(worker, root, environment, tmp_path / "worker.log"):
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
        one["name"]: one["work_pool"]["name"]
        for one in content["deployments"]
        if one["entrypoint"] == "flows/agents.py:stage"
    }
    assert pools == {"cpu": "cpu", "gpu": "gpu"}
    assert "prefect --no-prompt deploy " + " ".join(f"--name {one}" for one in pools) in readme
