"""Prefect: agents that answer, are silent or die; a real server with a password, and deployments;
settings for clusters; and no password in what is logged."""

import base64
import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Completed, Crashed, Pending, Running, Scheduled
from prefect.utilities.templating import apply_values
from ruamel.yaml import YAML
from seed_stage import read_outputs, records, write_seed_stage
from servers import Proxy, Server, http_status
from toy_repo import (
    ROOT,
    Clones,
    ToyRepo,
    count_starts,
    make_environment,
    make_flow_toy,
    wait_until,
)

from flows import agents, pipeline, share, sweep
from flows.plan import StageNode
from flows.process import Runner, kill_tree
from flows.share import RemoteError
from stages.runtime.redaction import hide_secrets

NODE = StageNode(name="s", deps=(), outs=(), params=(), upstream=(), gpu=0)
FLOWS = ROOT / "flows"


# When an agent counts as dead: answers of a server on a clock of our own.

PENDING, BUSY, WAITING = Pending(), Running(), Scheduled()
HALF = 0.6 * agents.LOST_SECONDS
FOLLOWED = {
    # name: answers as (seconds until it is asked, seconds that it takes, state, beat), final state
    "ends": ([(1, 0, BUSY, 1), (1, 0, Completed(), 1)], StateType.COMPLETED),
    "beats": ([*[(HALF, 0, BUSY, n) for n in range(5)], (1, 0, Completed(), 9)], "COMPLETED"),
    "falls silent": ([(HALF, 0, BUSY, 1)] * 4, StateType.CRASHED),
    "waits for a worker": ([(HALF, 0, WAITING, 0)] * 5 + [(1, 0, Completed(), 0)], "COMPLETED"),
    "was never begun by its worker": ([(HALF, 0, PENDING, 0)] * 4, StateType.CRASHED),
    "has a slow server": (
        [(HALF, 10, BUSY, 1)] * 6 + [(1, 0, Completed(), 1)],  # which may not have heard the agent
        StateType.COMPLETED,
    ),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_state_of_a_run_that(monkeypatch, tmp_path, name: str) -> None:
    answers, expected = FOLLOWED[name]
    rest, sent, now = [*answers], [], 0.0

    def wait(_: float) -> bool:
        nonlocal now
        now += rest[0][0] if rest else 0.0
        return False

    def ask_server(_: object, request: object, *arguments: Any, **__: Any) -> Any:
        nonlocal now
        if request is SyncPrefectClient.set_flow_run_state:
            return sent.append(arguments[1])
        if sent:
            return SimpleNamespace(id="r", state=sent[-1], labels={})
        _, seconds, state, beat = rest.pop(0)
        now += seconds
        return SimpleNamespace(id="r", state=state, labels={"beat": beat})

    monkeypatch.setattr(agents, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(agents.AgentRun, "ask_server", ask_server)
    runner = Runner(root=tmp_path, log=lambda _: None, cancel=SimpleNamespace(wait=wait))
    state = agents.AgentRun(NODE, "", "", runner).follow(SimpleNamespace(id="r"))
    assert state.type == expected
    assert bool(sent) == (expected == StateType.CRASHED)


@pytest.mark.parametrize(
    ("deaths", "outcome"), [(agents.MAX_CRASHES - 1, "executed"), (99, "failed")]
)
def test_a_stage_at_which_agents_die_is_tried_by_others_up_to_a_limit(
    monkeypatch, tmp_path, deaths, outcome
) -> None:
    states = iter([Crashed(message="gone")] * deaths + [Completed(name="Executed")])
    monkeypatch.setattr(agents.AgentRun, "submit", lambda _: None)
    monkeypatch.setattr(agents.AgentRun, "follow", lambda *_: next(states))
    result = agents.AgentRun(NODE, "", "", Runner(root=tmp_path, log=lambda _: None)).run()
    assert (result.outcome.value, result.attempts) == (outcome, agents.MAX_CRASHES)


@pytest.mark.parametrize(
    ("states", "joined"), [([BUSY], 0), ([Cancelling(), BUSY], 1), ([Crashed(), Cancelling()], 2)]
)
def test_a_run_that_has_ended_or_is_cancelled_is_not_joined(
    monkeypatch, tmp_path, states, joined
) -> None:
    """The server returns the run that has a key; a new one has no state."""

    def create(_: object, *, idempotency_key: str, **__: Any) -> Any:
        number = int(idempotency_key.rpartition("-")[2])
        return SimpleNamespace(id=number, state=(*states, None, None)[number])

    client = SimpleNamespace(
        read_deployment_by_name=lambda name: SimpleNamespace(id=name),
        create_flow_run_from_deployment=create,
    )
    monkeypatch.setattr(agents.AgentRun, "ask_server", lambda _, request: request(client))
    assert agents.AgentRun(NODE, "i", "", Runner(root=tmp_path)).submit().id == joined


# No password of an address in what is logged, printed or kept by a server.


@pytest.mark.parametrize(
    ("text", "shown"), YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))["secrets"]
)
def test_secrets_of_an_address_are_hidden(text: str, shown: str) -> None:
    assert hide_secrets(text) == shown


@contextmanager
def http_server(status: int, received: list[dict[str, str]] | None = None) -> Iterator[int]:
    """The port of a server that answers all with a status."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            if received is not None:
                received.append(json.loads(self.rfile.read(length)))
            self.send_response(status)
            self.end_headers()

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "error"), [(401, ValueError), (499, ValueError), (500, RemoteError)]
)
def test_a_server_that_refuses_is_asked_again_if_it_is_broken(monkeypatch, status, error) -> None:
    monkeypatch.setattr(share, "OUTAGE_SECONDS", 0.0)
    monkeypatch.setattr(share, "LONGEST_PAUSE", 0.0)
    logged: list[str] = []
    run = agents.AgentRun(NODE, "", "", Runner(root=Path(), log=logged.append))
    with http_server(status) as port:
        address = f"http://me:sekret@127.0.0.1:{port}/api"
        monkeypatch.setattr(agents, "get_client", lambda sync_client: SyncPrefectClient(address))
        with pytest.raises(error, match=str(status)) as stop:
            run.ask_server(SyncPrefectClient.read_flow_run, "00000000-0000-0000-0000-000000000000")
    assert stop.type is error
    assert stop.value.__suppress_context__
    assert "sekret" not in " ".join([*logged, str(stop.value)])
    assert "***@127" in str(stop.value)


@pytest.mark.parametrize("command", [pipeline.main, lambda: sweep.queue_points([["a=1"]], None)])
@pytest.mark.parametrize("status", [401, None])
def test_a_server_that_refuses_or_is_not_there_ends_a_command_with_a_message(
    monkeypatch, command, status
) -> None:
    monkeypatch.setattr(sys, "argv", ["flows.pipeline"])
    monkeypatch.setattr(pipeline, "exit_when_terminated", lambda: None)
    words = status or "refused|failed"
    with http_server(status or 200) as port:
        address = f"http://me:sekret@127.0.0.1:{port if status else 9}/api"
        with (
            temporary_settings({PREFECT_API_URL: address}),
            pytest.raises(
                ValueError, match=rf"\*\*\*@127.*{words}.*PREFECT_API_AUTH_STRING"
            ) as stop,
        ):
            command()
    assert stop.value.__suppress_context__
    assert "sekret" not in str(stop.value)


# Settings of flows/clusters.md, against the workers that would read them.


def read_deployment(heading: str) -> dict[str, Any]:
    page = (FLOWS / "clusters.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (deployment,) = YAML(typ="safe").load(block)
    assert deployment["entrypoint"] == "flows/agents.py:stage"
    assert deployment["name"] == deployment["work_pool"]["name"] == replace(NODE, gpu=1).pool
    return deployment["work_pool"]["job_variables"]


def test_a_slurm_worker_accepts_the_job_variables() -> None:
    config = pytest.importorskip("prefect_slurm.config", reason="needs the extra `clusters`")
    variables = read_deployment("Slurm")
    assert set(variables) <= set(config.SlurmWorkerTemplateVariables.model_fields)
    values = config.SlurmWorkerTemplateVariables(**variables)
    assert (values.cpu, values.memory, values.time_limit) == (8, 64, 12)


def test_a_kubernetes_worker_makes_a_pod_with_gpus_and_the_clone() -> None:
    worker = pytest.importorskip("prefect_kubernetes.worker", reason="needs the extra `clusters`")
    variables = read_deployment("Kubernetes")
    template = json.loads((FLOWS / "kubernetes.json").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError, match="image"):
        jsonschema.validate({"gpus": 1}, template["variables"])
    properties = template["variables"]["properties"]
    assert set(variables) <= set(properties)
    defaults = {name: item["default"] for name, item in properties.items() if "default" in item}
    job = worker.KubernetesWorkerJobConfiguration(
        **apply_values(template["job_configuration"], defaults | variables)
    ).job_manifest
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/posttrain:1"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1, "memory": "64Gi"}
    assert container["resources"]["requests"] == {"cpu": "8", "memory": "64Gi"}
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "posttrain"
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["workingDir"].startswith(mounts["clone"] + "/")


def test_each_pool_of_a_stage_has_a_deployment_and_none_names_this_machine() -> None:
    text = (ROOT / "prefect.yaml").read_text()
    pools = {
        item["name"]: item["work_pool"]["name"]
        for item in YAML(typ="safe").load(text)["deployments"]
        if item["entrypoint"] == "flows/agents.py:stage"
    }
    assert pools == {pool: pool for pool in (NODE.pool, replace(NODE, gpu=1).pool)}
    assert str(ROOT) not in text
    assert str(Path(sys.executable).parent) not in text


# A real server with a password.


class Prefect:
    """A server at an address that stays when it returns; agents, and what they log."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.proxy = folder, Proxy(0)
        self.proxy.refuse()
        self.environment = make_environment(
            PREFECT_HOME=str(folder),
            PREFECT_API_URL=f"{self.proxy.url}/api",
            PREFECT_SERVER_API_AUTH_STRING="admin:of-this-test",
            PREFECT_API_AUTH_STRING="admin:of-this-test",
            PREFECT_WORKER_QUERY_SECONDS="2",
            POSTTRAIN_LOST_SECONDS="60",  # Prefect may start slowly
            NO_COLOR="1",
        )
        words = ["prefect", "--no-prompt", "server", "start", "--host", "127.0.0.1", "--port"]
        self.server = Server(lambda port: [*words, str(port)], folder, self.environment)
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self) -> None:
        self.server.start("/api/health")
        self.proxy.resume(self.server.port)

    def die(self) -> None:
        self.server.send(signal.SIGKILL)
        self.proxy.refuse()

    def background(self, name: str, repo: ToyRepo, *command: str) -> Any:
        environment = repo.environment | self.environment | {"PWD": str(repo.path)}
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=repo.path, env=environment, stdout=log, stderr=log, text=True
            )
        return self.processes[name]

    def read_log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def kill(self, name: str) -> None:
        """SIGKILL for a process and all that it started, as when its machine goes off."""
        kill_tree(self.processes.pop(name).pid, grace_seconds=0.0)

    def ask(self, path: str) -> list[dict[str, Any]]:
        """All that the API lists at a path."""
        password = base64.b64encode(b"admin:of-this-test").decode()
        headers = {"Authorization": f"Basic {password}", "Content-Type": "application/json"}
        url = f"{self.proxy.url}/api/{path}"
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers)) as answer:
            return json.load(answer)

    def set_up(self, repo: ToyRepo, *deployments: str) -> None:
        repo.environment.update(self.environment)
        for pool in ("cpu", "gpu"):
            words = ("work-pool", "create", pool, "--type", "process", "--overwrite")
            repo.run("prefect", *words)
        names = [word for name in deployments for word in ("--name", name)]
        repo.run("prefect", "--no-prompt", "deploy", *names)


@pytest.fixture(scope="module")
def prefect(tmp_path_factory) -> Iterator[Prefect]:
    made = Prefect(tmp_path_factory.mktemp("prefect"))
    made.start()
    yield made
    made.die()


@pytest.fixture
def pools(prefect: Prefect, tmp_path: Path) -> Iterator[Callable[..., tuple[ToyRepo, ...]]]:
    """Clones `main`, `one` and `two` with a remote; ends all that was started in them."""

    def make(edit: Callable[[ToyRepo], object]) -> tuple[ToyRepo, ...]:
        toy = make_flow_toy(tmp_path / "checkout")
        edit(toy)
        (tmp_path / "remote").mkdir()
        clones = Clones(toy, prefect.environment)
        clones.share(str(tmp_path / "remote"))
        result = tuple(clones.clone(name) for name in ("main", "one", "two", "alone"))
        prefect.set_up(result[0], "cpu", "gpu")
        return result

    yield make
    for name in [*prefect.processes]:
        prefect.kill(name)


PIPELINE = (sys.executable, "-m", "flows.pipeline")
WORKER = ("prefect", "worker", "start", "--limit", "1", "--pool")


@pytest.mark.slow
def test_a_killed_agent_and_a_restarted_server_cost_no_result(prefect, pools, tmp_path) -> None:
    def edit(toy: ToyRepo) -> None:
        text = (toy.path / "dvc.yaml").read_text().replace("      meta: {gpu: 1}\n", "")
        (toy.path / "dvc.yaml").write_text(text)
        toy.change(left={"mode": "wait"})

    main, one, two, alone = pools(edit)
    prefect.background("one", one, *WORKER, "cpu")
    pipeline = prefect.background("main", main, *PIPELINE, "--pools")
    wait_until(lambda: "left" in one.started(), "left on the first agent")
    prefect.die()
    prefect.kill("one")
    wait_until(lambda: "does not answer" in prefect.read_log("main"), "the pipeline says so")
    prefect.start()
    prefect.background("two", two, *WORKER, "cpu")
    (two.path / "release").touch()
    assert pipeline.wait(timeout=600) == 0, prefect.read_log("main")
    assert "no sign of life" in prefect.read_log("main")
    assert main.started() == []
    assert sum(count_starts(one, two).values()) <= 5, "what was not killed was not repeated"
    (alone.path / "release").touch()
    alone.repro("-q")
    assert main.results() == alone.results()
    entries = [path.parent for path in (tmp_path / "remote/runs").glob("*/*/*")]
    assert len(entries) == len(set(entries)) == 4, "one result of each stage's inputs"


@pytest.mark.slow
def test_a_task_a_stage_with_its_outcome_and_no_process_after_a_signal(prefect, toy) -> None:
    toy.environment.update(prefect.environment)
    for path in (toy.path / "data/side/left").iterdir():
        path.unlink()
    toy.change(right={"mode": "value_error", "time": "12:34:56 "})
    output = toy.run(*PIPELINE, "-j", "2", code=1)
    assert "Task run 'side@right' - working on" in output  # without the stage's own time
    states = dict(re.findall(r"Task run '(\S+)' - Finished in state (\w+)", output))
    expected = {"prepare": "Skipped", "side@left": "Restored", "side@right": "Failed"}
    assert states == expected, "and none of track"
    assert "1 restored, 1 skipped, 1 failed, 1 blocked" in output
    assert toy.started().count("right") == 2, "the error is final"
    toy.change(left={"mode": "spawn"})
    # of a worker, which Prefect handles, and of a terminal that is closed, which it does not
    for number in (signal.SIGTERM, signal.SIGHUP):
        flow = toy.start(*PIPELINE, "side@left")
        below = toy.grandchild()
        flow.send_signal(number)
        output, _ = flow.communicate(timeout=200)
        assert flow.returncode != 0, output
        wait_until(lambda below=below: not below.is_running(), "the end of the stage", 60)
        (toy.path / "grandchild.pid").unlink()


SAVE_BLOCK = """
import sys
from prefect.blocks.notifications import CustomWebhookNotificationBlock
CustomWebhookNotificationBlock(
    name="team", url=sys.argv[1], json_data={"subject": "{{subject}}", "body": "{{body}}"}
).save("team", overwrite=True)
"""


@pytest.mark.weekly
def test_the_nightly_deployment_as_the_page_has_it(prefect, toy: ToyRepo) -> None:
    page = (FLOWS / "README.md").read_text(encoding="utf-8")
    section = page.partition("\n## An agent that runs every night\n")[2].partition("\n## ")[0]
    commands = [shlex.split(line) for line in re.findall(r"(?m)^(prefect .*)$", section)]
    (deploy,) = [words for words in commands if "deploy" in words]
    (worker,) = [words for words in commands if "worker" in words]
    (trigger,) = [words for words in commands if "deployment" in words]
    report = toy.path / "data/report"
    report.mkdir()
    (report / "verdict.txt").write_text("grpo is better")
    settings = f"{prefect.proxy.url}/api/admin/settings"
    assert http_status(settings) == 401, "the API must ask for the password"
    prefect.set_up(toy, "cpu")
    toy.run(*deploy)
    # PWD still names the folder in which pytest was started: it must not count
    inspected = toy.run("prefect", "deployment", "inspect", "pipeline/nightly", "-o", "json")
    steps = json.loads(inspected)["pull_steps"]
    assert [next(iter(step.values()))["directory"] for step in steps] == [str(toy.path.resolve())]
    toy.change(left={"mode": "other"})
    prefect.background("worker", toy, *worker)
    received: list[dict[str, str]] = []
    try:
        assert "Completed" in toy.run(*trigger)
        toy.change(right={"mode": "value_error"})
        with http_server(200, received) as port:
            toy.run(sys.executable, "-c", SAVE_BLOCK, f"http://127.0.0.1:{port}")
            toy.run(*trigger, "--param", "alert=custom-webhook/team", code=1)
            # the run has its final state, which the command waits for, before the alert is sent
            wait_until(lambda: received, "the alert")
    finally:
        prefect.kill("worker")
    (message,) = received
    assert message["subject"] == "nightly: all stages at no commit: Failed"
    assert "1 failed" in message["body"]
    verdicts = [item for item in prefect.ask("artifacts/filter") if item["key"] == "verdict"]
    (verdict,) = verdicts  # the report is that of the run before
    assert verdict["data"] == "grpo is better"
    schedules = toy.run("prefect", "deployment", "schedule", "ls", "pipeline/nightly")
    assert "0 2 * * *" in schedules
    assert "False" in schedules, "the nightly schedule is off until someone turns it on"


@pytest.mark.weekly
def test_each_seed_by_an_agent_then_joined_by_one(prefect, pools) -> None:
    main, one, two, alone = pools(lambda toy: write_seed_stage(toy.path))
    for name, agent in (("one", one), ("two", two)):
        (agent.path / "refuse-1").touch()
        for pool in ("cpu", "gpu"):
            prefect.background(f"{name}-{pool}", agent, *WORKER, pool)
    command = (*PIPELINE, "--pools", "--seeds")
    assert prefect.background("main", main, *command).wait(timeout=600) == 1
    assert "refused" in prefect.read_log("main")
    for agent in (one, two):
        assert agent.started(), "each has its share"
        (agent.path / "refuse-1").unlink()
    assert prefect.background("main", main, *command).wait(timeout=600) == 0
    assert count_starts(main, one, two) == {"seed-0": 1, "seed-1": 2, "seed-2": 1}
    assert main.started() == []
    (record,) = records(main.path)
    assert sorted(record["seeds"]) == ["0", "1", "2"]
    alone.repro("-q")
    assert read_outputs(main.path) == read_outputs(alone.path)


WORDS = "data/raw/words.txt"


@pytest.mark.weekly
def test_two_workers_run_the_points_of_a_sweep_in_copies_that_share_a_cache(prefect, toy) -> None:
    graph = toy.path / "dvc.yaml"
    graph.write_text(
        graph.read_text().replace("deps: [data/prepare,", f"deps: [{WORDS},data/prepare,")
    )
    (toy.path / WORDS).parent.mkdir()
    (toy.path / WORDS).write_text("the user's, in no commit\n")
    toy.repro("-q")
    prefect.set_up(toy, "sweep")
    toy.commit()
    lock = (toy.path / "dvc.lock").read_bytes()
    toy.run(sys.executable, "-m", "flows.sweep", "left.mode=one,two")
    for name in ("first", "second"):
        prefect.background(name, toy, *WORKER, "gpu")

    def list_points() -> list[str]:
        time.sleep(1.0)
        return toy.run(sys.executable, "-m", "dvc", "exp", "list", "--name-only").split()

    points = ["left.mode=one", "left.mode=two"]
    try:
        wait_until(lambda: len(list_points()) == 2, "two experiments")
        toy.run(sys.executable, "-m", "flows.sweep", "left.mode=one")
        logs = ("first", "second")
        again = "Stage 'side@left' is cached"
        wait_until(lambda: any(again in prefect.read_log(name) for name in logs), again)
        wait_until(lambda: sorted(list_points()) == points, "its experiment")
    finally:
        for name in ("first", "second"):
            prefect.kill(name)
    assert sorted(list_points()) == points
    text = prefect.read_log("first") + prefect.read_log("second")
    assert "Stage 'prepare' didn't change, skipping" in text
    assert "Running stage 'side@left'" in text
    assert "Running stage 'side@right'" not in text
    assert (toy.path / "dvc.lock").read_bytes() == lock
    table = toy.run(sys.executable, "-m", "flows.experiments")
    assert table.count("left.mode=") == 2
