"""MLflow dies, hangs and returns: nothing is lost, nothing is there twice, and nothing hangs."""

import json
import logging
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import mlflow
import pytest
from mlflow.tracking._tracking_service import utils
from servers import Proxy, Server, contents, hanging, serve_mlflow
from toy_repo import ToyRepo, make_toy_repo, wait_until

from stages import track
from stages.tracking import lockfile, store, view

pytestmark = pytest.mark.slow

IN_A_PIPELINE = 0.75
"""`store.PATIENCE` where DVC runs `track`."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[ToyRepo, str]:
    """A pipeline beside a socket that accepts and never answers, and what it printed."""
    repo = make_toy_repo(tmp_path_factory.mktemp("outages") / "toy")
    with hanging() as url:
        return repo, repo.repro(MLFLOW_TRACKING_URI=url)


@pytest.fixture(scope="module")
def repo(finished) -> ToyRepo:
    return finished[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with serve_mlflow(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def sync(repo, monkeypatch) -> Callable[..., Any]:
    """Do what `track` does; runs added, or the outage."""
    monkeypatch.chdir(repo.path)
    for name, value in track.SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # of a busy machine's server
    monkeypatch.setattr(logging.root, "disabled", True)
    entries = lockfile.read_entries()

    def call(url: str, experiment: str, *, patience: float = 60.0) -> Any:
        monkeypatch.setattr(store, "PATIENCE", patience)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", experiment)
        utils._artifact_repos_cache.clear()  # as in a process of its own
        try:
            return view.sync_entries(entries)[0]
        except store.OUTAGES as error:
            return error

    return call


@pytest.fixture
def never_out(server, sync) -> dict[str, Any]:
    """What a server holds that was there all the time."""
    added = sync(server.url, "whole")
    assert added in (0, 7), added
    assert sync(server.url, "whole") == 0
    return contents(server.url, "whole")


def test_a_pipeline_beside_a_server_that_hangs_ends_well(finished) -> None:
    repo, output = finished
    assert "Traceback" not in output
    assert "python -m stages.track" in output
    manifest = repo.path / "data/tracked/manifest.json"
    before = manifest.read_bytes()
    again = repo.repro("--force", "--single-item", "track")  # with a store of its own
    assert "runs added" in again
    assert manifest.read_bytes() == before


CUTS = [0.02, 0.15, 0.4, 0.7, 0.88]
"""Shares of the bytes of a whole upload after which it ends."""


@pytest.mark.parametrize("hangs", [False, True], ids=["cut", "hanging"])
def test_an_upload_that_ends_anywhere_is_completed_by_the_next(
    server, never_out, sync, hangs
) -> None:
    with Proxy(server.port) as proxy:
        assert sync(proxy.url, f"proxied-{hangs}") == 7
        total = proxy.count
    for share in CUTS[1:3] if hangs else CUTS:
        name = f"{hangs}-{share}"
        with Proxy(server.port, share * total, hangs=hangs) as proxy:
            error = sync(proxy.url, name, patience=IN_A_PIPELINE)
        assert isinstance(error, store.OUTAGES), name
        added = sync(server.url, name)
        assert not isinstance(added, Exception), (name, added)
        assert contents(server.url, name) == never_out, name


def test_a_server_that_is_stopped_killed_and_started_again(server, never_out, sync) -> None:
    with Proxy(server.port) as proxy:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            server.send(number)
            error = sync(proxy.url, "returned", patience=IN_A_PIPELINE)
            assert isinstance(error, store.OUTAGES)
        server.start()
        proxy.port = server.port
        assert sync(proxy.url, "returned") == 7
    assert contents(server.url, "returned") == never_out


# A running stage: seen while it works, and at its end as if it had never been shown.


@pytest.mark.weekly
def test_a_killed_and_resumed_stage_is_shown_and_ends_as_if_it_had_never_been(tmp_path) -> None:
    repo = make_toy_repo(tmp_path / "toy")
    uri = f"sqlite:///{repo.path}/mlflow.db"
    repo.run("python", "-m", "stages.track")  # makes the store, which takes seconds
    live = [repo.start("python", "-m", "stages.track", "--live")]
    dvc = repo.start("dvc", "repro", "train@sft", TOY_STOP="hang")
    wait_until((repo.path / "stopped").exists, "a stage at work")
    client = mlflow.MlflowClient(uri)
    expected = [(seed, step) for seed in (0, 1) for step in range(4)]
    wait_until(lambda: list_points(client) == expected, "its points")
    (path,) = repo.path.glob(".pipe/train@sft-*/seed-1/journal.jsonl")
    row = json.loads(path.read_text().splitlines()[-1]) | {"index": 4}
    drawn = random.Random("0-1")  # of the toy stage: its step 4 will have this loss again
    row["metrics"]["loss/total"] = [1e-5 * drawn.random() for _ in range(5)][4]
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    wait_until(lambda: (1, 4) in list_points(client), "a point more")
    live[0].send_signal(signal.SIGKILL)
    dvc.send_signal(signal.SIGKILL)
    dvc.wait(timeout=60)
    live.append(repo.start("python", "-m", "stages.track", "--live"))
    output = repo.repro()  # from the beginning, with track at its end
    live[1].send_signal(signal.SIGINT)
    outputs = [item.communicate(timeout=600)[0] for item in live]
    assert "Traceback" not in "".join(outputs)
    assert "MLflow: 7 runs added" in output
    assert repo.record("train@sft")["attempt"] == 2
    fresh = f"sqlite:///{tmp_path}/fresh.db"
    repo.run("python", "-m", "stages.track", MLFLOW_TRACKING_URI=fresh)
    assert without_clocks(contents(uri)) == without_clocks(contents(fresh))


def list_points(client: mlflow.MlflowClient) -> list[tuple[int, int]]:
    """(seed, step) of each point of the stage's loss."""
    experiment = client.get_experiment_by_name("posttrain").experiment_id
    runs = client.search_runs([experiment], "attributes.run_name = 'train sft'")
    assert len(runs) <= 1
    return [
        (seed, point.step)
        for run in runs
        for seed in (0, 1)
        for point in client.get_metric_history(run.info.run_id, f"seed-{seed}/loss/total")
    ]


def without_clocks(held: dict[str, Any]) -> dict[str, Any]:
    """Without the start of each run, and when its points were written down."""
    for run in held.values():
        if isinstance(run, dict):
            status, _, ended, stage = run["info"]
            run["info"] = status, ended, stage
            run["points"] = {
                name: [(step, value) for step, value, _ in values]
                for name, values in run["points"].items()
            }
    return held
