"""MLflow's own pages of runs that stages.track has added, in a browser."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import chromium
import mlflow
import numpy as np
import pytest
from selenium.webdriver.support.wait import WebDriverWait
from toy_repo import make_toy_repo

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SECONDS = 120
"""How long a page may take; on a free machine each takes five."""
HARMLESS = (
    # Who is logged in: without a password there are no users, and MLflow's page asks all the same.
    r"/ajax-api/2\.0/mlflow/users/current - Failed to load resource: .* 404",
    # A layout took more than one frame; the browser finishes it in the next.
    r"ResizeObserver loop completed with undelivered notifications",
)
"""Complaints of MLflow's pages that are none of ours, each for a reason."""


ATTACK = (
    '<script>window.attacked = 1</script><img src="x" onerror="window.attacked = 1">'
    '<a href="javascript:window.attacked=1">link</a> [link](javascript:window.attacked=1) '
    "![x](http://127.0.0.1:9/x.png) \x1b[2J\x07 #### 7"
)
"""What a model may write, and what may stand in a note."""
PRESENT = """
return [...document.querySelectorAll('img, script, a, iframe')].map(one => one.outerHTML)
  .filter(text => text.includes('attacked') || text.includes('127.0.0.1:9'));
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A repository with two manifests, of runs that differ in a parameter; its texts attack."""
    repo = make_toy_repo(tmp_path_factory.mktemp("tracked") / "toy")
    work = repo.path / "work.py"
    text = work.read_text().replace('"4 #### 4"', repr(ATTACK))
    work.write_text(text.replace('"First.\\nSecond.\\nThird.\\n"', repr(f"First. {ATTACK}")))
    repo.repro()
    repo.set_params(goal=0.125)
    repo.repro()
    return f"sqlite:///{repo.path}/mlflow.db"


@pytest.fixture(scope="module")
def server(store, tmp_path_factory):
    """The address of an MLflow server on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serving(store, port, tmp_path_factory.mktemp("server")):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def serving(store, port, folder):
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store,
               "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]  # fmt: skip
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    log = folder / "server.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process, log)
            yield
        finally:
            os.killpg(process.pid, 15)
            process.wait(timeout=60)


def wait_for(address, process, log):
    begin = time.monotonic()
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() - begin < SECONDS, log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.3)


@pytest.fixture(scope="module")
def held(store):
    """The experiment's id and its runs' ids by name."""
    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name("posttrain").experiment_id
    runs = client.search_runs([experiment])
    return experiment, {run.info.run_name: run.info.run_id for run in runs}


def opened(driver, address, *texts):
    """The page, when it shows all of `texts`."""
    chromium.set_width(driver, 1280)
    driver.get("about:blank")
    chromium.complaints(driver)
    chromium.requests(driver)
    driver.get(address)
    script = "return document.body.innerText"
    WebDriverWait(driver, SECONDS).until(
        lambda _: all(text in driver.execute_script(script) for text in texts),
        message=f"{texts} on {address}",
    )


def charts(driver):
    """Every chart's pixels that are neither white nor grey, as a share."""
    found = []
    for chart in driver.find_elements("css selector", ".js-plotly-plot"):
        data = chromium.pixels(chart.screenshot_as_png).astype(int)
        found.append(float((np.ptp(data, axis=2) > 40).mean()))
    return found


def unexpected(driver):
    return [
        text
        for text in chromium.complaints(driver)
        if not any(re.search(pattern, text) for pattern in HARMLESS)
    ]


def settled(driver, server, path):
    """Take a screenshot; the page has nothing to complain of and asked only its server."""
    print(f"screenshot: {path}")
    shown = chromium.screenshot(driver, path)
    assert shown.std() > 10, "an empty page"
    assert unexpected(driver) == []
    web = [url for url in chromium.requests(driver) if url.startswith("http")]
    assert [url for url in web if not url.startswith(f"{server}/")] == []


def test_the_list_of_runs(driver, server, held, tmp_path):
    experiment, runs = held
    opened(driver, f"{server}/#/experiments/{experiment}/runs", "train sft", "compare")
    shown = driver.execute_script("return document.body.innerText")
    assert all(name in shown for name in runs)
    settled(driver, server, tmp_path / "list.png")


def test_a_run_with_its_numbers(driver, server, held, tmp_path):
    experiment, runs = held
    address = f"{server}/#/experiments/{experiment}/runs/{runs['train dpo']}"
    opened(driver, address, "train dpo", "Metrics", "final_loss", "rate")
    settled(driver, server, tmp_path / "run.png")


def test_the_curves_of_a_run(driver, server, held, tmp_path):
    experiment, runs = held
    address = f"{server}/#/experiments/{experiment}/runs/{runs['train dpo']}/model-metrics"
    opened(driver, address, "train dpo", "seed-0", "total")
    WebDriverWait(driver, SECONDS).until(lambda _: charts(driver) and min(charts(driver)) > 0.001)
    settled(driver, server, tmp_path / "curves.png")


def test_the_comparison_of_two_manifests(driver, server, held, tmp_path):
    experiment, runs = held
    pair = [run_id for name, run_id in runs.items() if name.startswith("manifest")]
    assert len(pair) == 2
    address = (
        f"{server}/#/compare-runs?runs={json.dumps(pair)}&experiments=[{json.dumps(experiment)}]"
    )
    opened(driver, address, "Comparing 2 Runs", "goal", "accuracy/dpo")
    WebDriverWait(driver, SECONDS).until(lambda _: charts(driver) and min(charts(driver)) > 0.001)
    settled(driver, server, tmp_path / "comparison.png")


@pytest.mark.parametrize(
    ("name", "place", "shown"),
    [
        ("sample dpo", "/artifacts/completions/test.json", ("completion", "attacked")),
        ("compare", "/artifacts/verdict.txt", ("First.", "attacked")),
    ],
    ids=["table", "text"],
)
def test_what_a_model_wrote_is_text(driver, server, held, tmp_path, name, place, shown):
    experiment, runs = held
    run_id = next(run_id for one, run_id in runs.items() if one.startswith(name))
    opened(driver, f"{server}/#/experiments/{experiment}/runs/{run_id}{place}", *shown)
    settled(driver, server, tmp_path / "attack.png")
    assert driver.execute_script("return window.attacked") is None
    assert driver.execute_script(PRESENT) == []
