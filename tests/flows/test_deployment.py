"""The schedule of flows/README.md, word for word, with a real server and a real worker."""

import base64
import json
import shlex
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from clones import background, http_status, wait_until
from ruamel.yaml import YAML

REPOSITORY = Path(__file__).resolve().parents[2]
README_COMMANDS = [
    "prefect --no-prompt server start --host 127.0.0.1 --port 4200",
    "prefect work-pool create gpu --type process",
    "prefect --no-prompt deploy --name nightly",
    "prefect worker start --pool gpu --limit 1",
    "prefect deployment run pipeline/nightly --watch",
]


SAVE_BLOCK = """
import sys
from prefect.blocks.notifications import CustomWebhookNotificationBlock
CustomWebhookNotificationBlock(
    name="team", url=sys.argv[1], json_data={"subject": "{{subject}}", "body": "{{body}}"}
).save("team")
"""


def ask(url: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    """All that the API of a server with a password lists at an address."""
    password = base64.b64encode(environment["PREFECT_API_AUTH_STRING"].encode()).decode()
    headers = {"Authorization": f"Basic {password}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers)) as answer:
        return json.load(answer)


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Address of a server that accepts JSON, and the list of what it received."""
    received: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()


@pytest.mark.slow
def test_server_pool_deployment_worker_and_trigger(
    checkout_with_flows: Path,
    server_environment: dict[str, str],
    free_port: int,
    started: Callable[[], list[str]],
    set_params: Callable[..., None],
    tmp_path: Path,
) -> None:
    root = checkout_with_flows
    (root / "data/report/plots").mkdir(parents=True)
    (root / "data/report/verdict.txt").write_text("grpo is better")
    (root / "data/report/plots/accuracy.csv").write_text("policy,mean_accuracy\nsft,0.64193\n")
    url = server_environment["PREFECT_API_URL"]
    commands = [shlex.split(line.replace("4200", str(free_port))) for line in README_COMMANDS]
    server, create_pool, deploy, worker, trigger = commands

    def run(command: list[str], status: int = 0) -> str:
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
        assert result.returncode == status, "\n".join([result.stdout, *logs])
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
            set_params(right={"mode": "value_error"})
            with webhook() as (address, received):
                run([sys.executable, "-c", SAVE_BLOCK, address])
                alert = ["--param", "alert=custom-webhook/team"]
                run([*trigger, *alert], status=1)
        assert "Flow run finished successfully in 'Completed'" in output
        runs = {
            run["state_name"]: run for run in ask(f"{url}/flow_runs/filter", server_environment)
        }
        assert runs["Completed"]["name"] == "nightly: all stages at no commit"
        assert runs["Completed"]["tags"] == ["nightly", "no commit"]
        (message,) = received
        assert message["subject"] == "nightly: all stages at no commit: Failed"
        assert "1 failed" in message["body"]
        artifacts = ask(f"{url}/artifacts/filter", server_environment)
        of_run = {
            artifact["key"]: artifact["data"]
            for artifact in artifacts
            if artifact["flow_run_id"] == runs["Completed"]["id"]
        }
        failed = runs["Failed"]["id"]
        keys = {artifact["key"] for artifact in artifacts if artifact["flow_run_id"] == failed}
        assert keys == {"pipeline"}, "the report is that of the run before"
        assert of_run["verdict"] == "grpo is better"
        assert json.loads(of_run["accuracy"]) == [{"policy": "sft", "mean_accuracy": 0.6419}]
        assert sorted(started()) == ["left", "prepare", "right", "right", "track"]
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
