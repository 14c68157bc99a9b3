"""MLflow dies, hangs and returns: nothing is lost, nothing is there twice, nothing waits."""

import logging
import random
import signal
import time

import pytest
from mlflow.tracking._tracking_service import utils
from mlflow_server import Proxy, contents, hanging, serving
from toy_repo import make_toy_repo

from stages import track
from stages.tracking import lockfile, store, view

pytestmark = pytest.mark.slow

NUM_CUTS, NUM_HANGS = 6, 2
MAX_SECONDS = 1.0
IN_A_PIPELINE = 0.75
"""`store.PATIENCE` where DVC runs `track`."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A pipeline beside a socket that accepts and never answers, and what it said."""
    repo = make_toy_repo(tmp_path_factory.mktemp("outages") / "toy")
    with hanging() as url:
        return repo, repo.repro(MLFLOW_TRACKING_URI=url)


@pytest.fixture(scope="module")
def repo(ran):
    return ran[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def sync(repo, monkeypatch):
    """Do what `track` does; runs added (or the outage), and seconds."""
    monkeypatch.chdir(repo.path)
    for name, value in track.SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(logging.root, "disabled", True)
    entries = lockfile.read_entries()

    def call(url, experiment, *, patience=10.0):
        monkeypatch.setattr(store, "PATIENCE", patience)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", experiment)
        utils._artifact_repos_cache.clear()  # as in a process of its own
        begin = time.monotonic()
        try:
            return view.sync_entries(entries)[0], time.monotonic() - begin
        except store.OUTAGES as error:
            return error, time.monotonic() - begin

    return call


@pytest.fixture(scope="module")
def never_out(repo, server):
    """What a server holds that was there all the time."""
    output = repo.run("python", "-m", "stages.track", MLFLOW_TRACKING_URI=server.url)
    assert "MLflow: 7 runs added" in output
    return contents(server.url)


def test_a_pipeline_beside_a_server_that_hangs_ends_well_and_says_what_to_do(ran):
    repo, said = ran
    assert "run `python -m stages.track` when it can be reached" in said
    assert "Traceback" not in said
    manifest = repo.path / "data/tracked/manifest.json"
    before = manifest.read_bytes()
    again = repo.repro("--force", "--single-item", "track")  # with a store of its own
    assert "runs added" in again
    assert manifest.read_bytes() == before


def test_the_store_is_what_it_would_have_been(repo, server, never_out, sync):
    added, _ = sync(server.url, "first")
    assert added == 7
    assert contents(server.url, "first") == never_out
    assert sync(server.url, "first")[0] == 0


@pytest.mark.parametrize("hangs", [False, True], ids=["cut", "hangs"])
def test_an_upload_that_ends_anywhere_is_completed_by_the_next(server, never_out, sync, hangs):
    with Proxy(server.port) as proxy:
        assert sync(proxy.url, f"whole-{hangs}")[0] == 7
        total = proxy.count
    seed = random.randrange(10**6)
    print(f"seed: {seed}")
    drawn = random.Random(seed)
    for number in range(NUM_HANGS if hangs else NUM_CUTS):
        limit = drawn.randrange(total * 9 // 10)
        name = f"{hangs}-{number}"
        with Proxy(server.port, limit, hangs=hangs) as proxy:
            error, seconds = sync(proxy.url, name, patience=IN_A_PIPELINE)
            since = time.monotonic() - proxy.ended if proxy.ended else 0.0
        assert isinstance(error, store.OUTAGES), (seed, limit)
        assert since < MAX_SECONDS + 0.5, f"it waited {since:.2f} s of {seconds:.2f}"
        added, _ = sync(server.url, name)
        assert not isinstance(added, Exception), (seed, limit, added)
        assert contents(server.url, name) == never_out, (seed, limit)


def test_a_server_that_is_stopped_killed_and_started_again(server, never_out, sync):
    for number in (signal.SIGSTOP, signal.SIGKILL):
        server.send(number)
        error, seconds = sync(server.url, "returned", patience=IN_A_PIPELINE)
        assert isinstance(error, store.OUTAGES)
        assert seconds < MAX_SECONDS
    server.start()
    assert sync(server.url, "returned")[0] == 7
    assert contents(server.url, "returned") == never_out
