"""Two agents in clones of their own and a real server with a password, killed and restarted.

RESUME_KILLS: how often agents are killed, three times unless given.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import rotation
from clones import (
    AWS,
    Clones,
    end,
    http_status,
    make_bucket,
    s3_server,
    starts,
    unused_port,
    wait_until,
)
from seed_stage import read_outputs, records, write_seed_stage

from flows.plan import StageNode

REPOSITORY = Path(__file__).parents[2]

POOLS = ("cpu", "gpu")


def test_a_stage_goes_to_the_pool_of_what_it_needs() -> None:
    pools = [
        StageNode(name="s", deps=(), outs=(), params=(), upstream=(), gpu=gpu).pool
        for gpu in (0, 1, 8)
    ]
    assert pools == ["cpu", "gpu", "gpu-8"]


class Machines:
    """A server, agents, and the clone from which the pipeline is started."""

    def __init__(self, clones: Clones, port: int) -> None:
        self.port = port
        self.clones = clones
        self.main = clones.clone("main")
        self.agents = {name: clones.clone(name) for name in ("one", "two")}
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start_server(self) -> None:
        command = ("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self.port))
        self.processes["server"] = self.main.start(*command)
        health = f"http://127.0.0.1:{self.port}/api/health"
        wait_until(lambda: http_status(health) == 200, 300, "a server that answers")

    def start_agent(self, name: str) -> None:
        for pool in POOLS:
            command = ("prefect", "worker", "start", "--pool", pool, "--limit", "1")
            worker = self.agents[name].start(*command, "--name", f"{name}-{pool}")
            self.processes[f"{name} {pool}"] = worker

    def kill_agent(self, name: str) -> None:
        for pool in POOLS:
            end(self.processes.pop(f"{name} {pool}"))

    def busy(self) -> list[str]:
        """The agents that run a stage, or begin or end one."""
        return [
            name
            for name in self.agents
            for pool in POOLS
            if psutil.Process(self.processes[f"{name} {pool}"].pid).children()
        ]

    def start_pipeline(self, *options: str) -> "subprocess.Popen[str]":
        command = (sys.executable, "-m", "flows.pipeline", "--pools", *options)
        self.processes["pipeline"] = self.main.start(*command)
        return self.processes["pipeline"]

    def log(self) -> str:
        return (self.main.path.parent / "main.log").read_text()

    def end_as_one_machine(self, most_repeats: int) -> None:
        """The lock is that of `dvc repro` in one clone; what was not killed was not repeated."""
        counts = starts(self.main, *self.agents.values())
        print(counts)
        assert sum(counts.values()) <= 4 + most_repeats
        assert self.main.started() == []
        alone = self.clones.clone("alone")
        (alone.path / "release").touch()
        alone.run(sys.executable, "-m", "dvc", "repro", "-q")
        assert self.main.locked() == alone.locked()


@pytest.fixture
def machines(
    checkout_with_flows: Path,
    free_port: int,
    server_environment: dict[str, str],
    set_params: Callable[..., None],
) -> Iterator[Callable[..., Machines]]:
    """Makes them with a remote and parameters of the toy's stages; ends all that it started."""
    made: list[Machines] = []

    def make(remote: str, options: dict[str, str], **sections: dict[str, object]) -> Machines:
        set_params(**sections)
        environment = server_environment | AWS | {"PREFECT_WORKER_QUERY_SECONDS": "2"}
        environment["POSTTRAIN_LOST_SECONDS"] = "60"  # Prefect may start slowly
        clones = Clones(checkout_with_flows, environment)
        clones.share(remote, **options)
        made.append(Machines(clones, free_port))
        made[0].start_server()
        for pool in POOLS:
            made[0].main.run("prefect", "work-pool", "create", pool, "--type", "process")
        deploy = [word for pool in POOLS for word in ("--name", pool)]
        made[0].main.run("prefect", "--no-prompt", "deploy", *deploy)
        return made[0]

    yield make
    for machine in made:
        for process in machine.processes.values():
            if process.poll() is None:
                end(process)


@pytest.mark.slow
@pytest.mark.rotating
def test_a_killed_agent_and_a_restarted_server(machines: Callable[..., Machines], tmp_path: Path):
    (tmp_path / "remote").mkdir()
    on = machines(str(tmp_path / "remote"), {}, left={"mode": "wait"})
    on.start_agent("one")
    pipeline = on.start_pipeline()
    wait_until(lambda: "left" in on.agents["one"].started(), 300, "left on the first agent")
    pipeline.send_signal(signal.SIGINT)
    pipeline.wait(timeout=100)
    pipeline = on.start_pipeline()  # at once: what it wants is being cancelled
    wait_until(lambda: on.agents["one"].started().count("left") >= 2, 300, "left once more")
    end(on.processes.pop("server"))
    on.kill_agent("one")
    wait_until(lambda: "does not answer" in on.log(), 120, "the pipeline says so")
    on.start_server()
    on.start_agent("two")
    (on.agents["two"].path / "release").touch()
    assert pipeline.wait(timeout=500) == 0, on.log()
    assert "no sign of life from its agent" in on.log()
    on.end_as_one_machine(most_repeats=2)
    entries = [path.parent for path in (tmp_path / "remote/runs").glob("*/*/*")]
    assert len(entries) == len(set(entries)) == 4, "one result of each stage's inputs"


@pytest.mark.slow
@pytest.mark.rotating
def test_agents_that_are_killed_while_they_work(machines: Callable[..., Machines]):
    print(f"ROTATION_SEED={rotation.seed()}")
    drawn, most = random.Random(rotation.seed()), int(os.environ.get("RESUME_KILLS", "3"))
    port = unused_port()
    with s3_server(port):
        make_bucket(port, "results")
        options = {"endpointurl": f"http://127.0.0.1:{port}"}
        work = {"left": {"sleep": 5.0}, "right": {"sleep": 5.0}, "track": {"mode": "wait"}}
        on = machines("s3://results/toy", options, **work)
        for name in on.agents:
            on.start_agent(name)
        pipeline, kills = on.start_pipeline(), 0
        while pipeline.poll() is None and kills < most:
            wait_until(lambda: pipeline.poll() is not None or on.busy(), 300, "an agent at work")
            time.sleep(drawn.uniform(0, 20))  # it starts, fetches, runs and pushes
            for name in on.busy()[:1]:
                on.kill_agent(name)
                on.start_agent(name)
                kills += 1
        for name in on.agents:  # until now the last stage waits, or all would end between kills
            (on.agents[name].path / "release").touch()
        assert kills == most, on.log()
        assert pipeline.wait(timeout=900) == 0, on.log()
        on.end_as_one_machine(most_repeats=kills)


@pytest.mark.slow
@pytest.mark.rotating
def test_each_seed_by_an_agent_then_joined_by_one(
    machines: Callable[..., Machines],
    checkout_with_flows: Path,
    server_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    (tmp_path / "remote").mkdir()
    write_seed_stage(checkout_with_flows)
    server_environment |= {"PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": ""}
    on = machines(str(tmp_path / "remote"), {})
    for name, agent in on.agents.items():
        (agent.path / "refuse-1").touch()
        on.start_agent(name)
    assert on.start_pipeline("--seeds").wait(timeout=500) == 1
    assert "refused" in on.log()
    assert "the other seeds are kept" in on.log()
    for agent in on.agents.values():
        assert agent.started(), "each has its share"
        (agent.path / "refuse-1").unlink()
    assert on.start_pipeline("--seeds").wait(timeout=500) == 0, on.log()
    counts = starts(on.main, *on.agents.values())
    assert counts == {"seed-0": 1, "seed-1": 2, "seed-2": 1}
    assert on.main.started() == []
    (record,) = records(on.main.path)
    assert sorted(record["seeds"]) == ["0", "1", "2"]
    alone = on.clones.clone("alone")
    alone.run(sys.executable, "-m", "dvc", "repro", "-q")
    assert read_outputs(on.main.path) == read_outputs(alone.path)
