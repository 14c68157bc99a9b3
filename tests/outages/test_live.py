"""A running stage in MLflow: seen while it works, and at its end as if it had never been shown."""

import json
import random
import signal
import time

import mlflow
import pytest
from mlflow_server import contents
from toy_repo import make_toy_repo

pytestmark = pytest.mark.slow

MAX_AGE = 10.0


def test_a_killed_and_resumed_stage_is_shown_and_ends_as_if_it_had_never_been(tmp_path):
    repo = make_toy_repo(tmp_path / "toy")
    uri = f"sqlite:///{repo.path}/mlflow.db"
    repo.run("python", "-m", "stages.track")  # makes the store, which takes seconds
    live = [repo.start("python", "-m", "stages.track", "--live")]
    dvc = repo.start("dvc", "repro", "train@sft", TOY_STOP="hang")
    wait_for((repo.path / "stopped").exists, 300.0)
    client = mlflow.MlflowClient(uri)
    wait_for(
        lambda: points(client) == [(seed, step) for seed in (0, 1) for step in range(4)], 300.0
    )
    (journal,) = repo.path.glob(".pipe/train@sft-*/seed-1/journal.jsonl")
    row = json.loads(journal.read_text().splitlines()[-1]) | {"index": 4}
    drawn = random.Random("0-1")  # of the toy stage: its step 4 will have this loss again
    row["metrics"]["loss/total"] = [1e-5 * drawn.random() for _ in range(5)][4]
    with journal.open("a") as file:
        file.write(json.dumps(row) + "\n")
    logged = time.monotonic()
    wait_for(lambda: (1, 4) in points(client), 300.0)
    assert time.monotonic() - logged < MAX_AGE
    live[0].send_signal(signal.SIGKILL)
    dvc.send_signal(signal.SIGKILL)
    dvc.wait(timeout=60)
    live.append(repo.start("python", "-m", "stages.track", "--live"))
    time.sleep(1.0)
    said = repo.repro()  # from the beginning, with track at its end
    live[1].send_signal(signal.SIGINT)
    outputs = [item.communicate(timeout=60)[0] for item in live]
    assert live[1].returncode == 0
    assert "Traceback" not in "".join(outputs)
    assert "MLflow: 7 runs added" in said
    record = repo.record("train@sft")
    assert record["attempt"] == 2
    fresh = f"sqlite:///{tmp_path}/fresh.db"
    repo.run("python", "-m", "stages.track", MLFLOW_TRACKING_URI=fresh)
    assert without_clocks(contents(uri)) == without_clocks(contents(fresh))


def wait_for(condition, seconds):
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, condition
        time.sleep(0.1)


def points(client):
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


def without_clocks(found):
    """Without the start of each run, and when its points were written down."""
    for run in found.values():
        if isinstance(run, dict):
            status, _, ended, stage = run["info"]
            run["info"] = status, ended, stage
            run["points"] = {
                name: [(step, value) for step, value, _ in values]
                for name, values in run["points"].items()
            }
    return found
