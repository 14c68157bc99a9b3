"""Two agents in clones of their own and a real server with a password, killed and restarted."""

import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clones import Clone, Clones, end, starts, wait_until

from flows.plan import StageNode

POOLS = ("cpu", "gpu")


def test_a_stage_goes_to_the_pool_of_what_it_needs() -> None:
    pools = [
        StageNode(name="s", deps=(), outs=(), params=(), upstream=(), gpu=gpu).pool
        for gpu in (0, 1, 8)
    ]
    assert pools == ["cpu", "gpu", "gpu-8"]


class Machines:
    """A server, agents, and the clone from which the pipeline is started."""

    def __init__(self, clones: Clones, port: int, home: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/api"
        clones.environment |= {
            "PREFECT_HOME": str(home),
            "PREFECT_API_URL": self.url,
            "PREFECT_SERVER_API_AUTH_STRING": "admin:of-this-test",
            "PREFECT_API_AUTH_STRING": "admin:of-this-test",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "POSTTRAIN_LOST_SECONDS": "40",  # a start of Prefect takes long where others work
            "NO_COLOR": "1",
        }
        self.port = port
        self.main = clones.clone("main")
        self.agents = {name: clones.clone(name) for name in ("one", "two")}
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start_server(self) -> None:
        command = ("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self.port))
        self.processes["server"] = self.main.start(*command)
        wait_until(self.healthy, 300, "a server that answers")

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def start_agent(self, name: str) -> None:
        for pool in POOLS:
            command = ("prefect", "worker", "start", "--pool", pool, "--limit", "1")
            worker = self.agents[name].start(*command, "--name", f"{name}-{pool}")
            self.processes[f"{name} {pool}"] = worker

    def kill_agent(self, name: str) -> None:
        for pool in POOLS:
            end(self.processes.pop(f"{name} {pool}"))

    def start_pipeline(self) -> "subprocess.Popen[str]":
        command = (sys.executable, "-m", "flows.pipeline", "--pools")
        self.processes["pipeline"] = self.main.start(*command)
        return self.processes["pipeline"]

    def log(self) -> str:
        return (self.main.path.parent / "main.log").read_text()

    def all(self) -> list[Clone]:
        return [self.main, *self.agents.values()]


@pytest.fixture
def machines(
    checkout_with_flows: Path,
    free_port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    set_params: Callable[..., None],
) -> Iterator[Callable[..., Machines]]:
    """Makes them with some parameters of the toy's stages; ends all that was started."""
    for name in list(os.environ):
        if name.startswith("PREFECT_"):
            monkeypatch.delenv(name)
    bin_folder = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([bin_folder, os.environ["PATH"]]))
    (tmp_path / "remote").mkdir()
    made: list[Machines] = []

    def make(**sections: dict[str, object]) -> Machines:
        set_params(**sections)
        clones = Clones(checkout_with_flows)
        clones.share(str(tmp_path / "remote"))
        made.append(Machines(clones, free_port, tmp_path / "prefect"))
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


def same_as_alone(machines: Machines, clone: Clone) -> None:
    """The pipeline's clone holds what `dvc repro` of one machine makes."""
    (clone.path / "release").touch()
    clone.run(sys.executable, "-m", "dvc", "repro", "-q")
    assert machines.main.locked() == clone.locked()


def pushed(tmp_path: Path) -> list[int]:
    """Of each stage whose result was pushed: how many results of the same inputs there are."""
    keys = (key for key in (tmp_path / "remote/runs").glob("*/*"))
    return [len(list(key.iterdir())) for key in keys]


@pytest.mark.agents
def test_a_killed_agent_and_a_restarted_server(
    machines: Callable[..., Machines], checkout_with_flows: Path, tmp_path: Path
) -> None:
    on = machines(left={"mode": "wait"})
    on.start_agent("one")
    pipeline = on.start_pipeline()
    wait_until(lambda: "left" in on.agents["one"].started(), 300, "left on the first agent")
    end(on.processes.pop("server"))
    on.kill_agent("one")
    wait_until(lambda: "does not answer" in on.log(), 120, "the pipeline says so")
    on.start_server()
    on.start_agent("two")
    (on.agents["two"].path / "release").touch()
    assert pipeline.wait(timeout=500) == 0, on.log()
    assert "no sign of life from its agent" in on.log()
    counts = starts(*on.all())
    assert counts["left"] == 2
    assert {name: n for name, n in counts.items() if name != "left"} == {
        "prepare": 1, "right": 1 + (counts["right"] == 2), "track": 1,
    }  # fmt: skip
    assert pushed(tmp_path) == [1, 1, 1, 1]
    assert on.main.started() == []
    same_as_alone(on, Clones(checkout_with_flows).clone("alone"))


@pytest.mark.agents
def test_agents_that_are_killed_at_random(
    machines: Callable[..., Machines], checkout_with_flows: Path, tmp_path: Path
) -> None:
    seed = int(os.environ.get("POSTTRAIN_KILL_SEED", str(time.time_ns() % 10_000)))
    print("seed", seed)
    drawn = random.Random(seed)
    on = machines(left={"sleep": 5.0}, right={"sleep": 5.0})
    for name in on.agents:
        on.start_agent(name)
    pipeline = on.start_pipeline()
    kills = 0
    while pipeline.poll() is None and kills < 10:
        until = time.monotonic() + drawn.uniform(5, 40)
        while pipeline.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        if pipeline.poll() is None:
            name = drawn.choice(sorted(on.agents))
            on.kill_agent(name)
            on.start_agent(name)
            kills += 1
    assert pipeline.wait(timeout=900) == 0, on.log()
    counts = starts(*on.all())
    print(kills, "kills,", counts)
    assert sum(counts.values()) <= 4 + kills  # each repetition is of one that was killed
    assert pushed(tmp_path) == [1, 1, 1, 1]
    same_as_alone(on, Clones(checkout_with_flows).clone("alone"))
