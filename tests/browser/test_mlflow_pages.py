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
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.support.wait import WebDriverWait
from toy_repo import make_toy_repo

from stages.tracking import saved_views

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SECONDS = 120
"""How long a page may take; on a free machine each takes five."""
NUM_ATTEMPTS = 5
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
TEXT = "return document.body.innerText"
PRESENT = """
return [...document.querySelectorAll('img, script, a, iframe')].map(one => one.outerHTML)
  .filter(text => text.includes('attacked') || text.includes('127.0.0.1:9'));
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A repository with two manifests, of runs that differ in a parameter; its texts attack."""
    repo = make_toy_repo(tmp_path_factory.mktemp("tracked") / "toy")
    work = repo.path / "work.py"
    text = work.read_text().replace('"4 #### 4"', repr(ATTACK)).replace("loss/total", "reward/mean")
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
    wait_until_shown(driver, *texts)


def follow(driver, link):
    """Open the page of a link here; a click opens another tab."""
    address = link.get_attribute("href")
    driver.get("about:blank")
    driver.get(address)


def wait_until_shown(driver, *texts):
    WebDriverWait(driver, SECONDS).until(
        lambda _: all(text in driver.execute_script(TEXT) for text in texts),
        message=f"{texts} on {driver.current_url}",
    )


def charts(driver):
    """Every chart's pixels that are neither white nor grey, as a share."""
    result = []
    for chart in driver.find_elements("css selector", ".js-plotly-plot"):
        data = chromium.pixels(chart.screenshot_as_png).astype(int)
        result.append(float((np.ptp(data, axis=2) > 40).mean()))
    return result


def open_until_drawn(driver, address, *texts, only_first=False):
    """Open a page, until its charts (or the first) have colours; five times at most, as a person
    would: MLflow's page sometimes draws nothing, oftener on a busy machine. Not by a reload: MLflow
    takes the name of a saved view out of the address, so that would show another view."""

    def are_drawn(_):
        shares = charts(driver)
        return shares and min(shares[:1] if only_first else shares) > 0.001

    for attempt in range(NUM_ATTEMPTS):
        opened(driver, address, *texts)
        try:
            WebDriverWait(driver, SECONDS / 3).until(are_drawn)
        except TimeoutException:
            if attempt == NUM_ATTEMPTS - 1:
                raise
        else:
            return


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


def test_stage_runs_lie_below_the_manifests_that_they_were_new_in(driver, server, held, tmp_path):
    experiment, runs = held
    manifests = [name for name in runs if name.startswith("manifest")]
    opened(driver, f"{server}/#/experiments/{experiment}/runs", *manifests)
    assert "train sft" not in driver.execute_script(TEXT)
    settled(driver, server, tmp_path / "list.png")


def test_the_link_that_track_prints_opens_the_table_of_policies(driver, server, held, tmp_path):
    experiment, _ = held
    path = saved_views.find_path(experiment, saved_views.POLICIES)
    opened(driver, f"{server}/{path}", "train sft", "train dpo", "accuracy", "run/seconds", "0.25")
    assert "compare" not in driver.execute_script(TEXT).split("\n")
    settled(driver, server, tmp_path / "policies.png")
    follow(driver, driver.find_element("link text", "Manifests"))
    wait_until_shown(driver, "accuracy/dpo", "accuracy/sft", "manifest")
    settled(driver, server, tmp_path / "manifests.png")


def test_the_view_of_curves_draws_the_mean_and_each_seed(driver, server, held, tmp_path):
    experiment, _ = held
    path = saved_views.find_path(experiment, saved_views.CURVES)
    names = ["reward/mean", "seed-0/reward/mean", "seed-1/reward/mean"]
    texts = [f"train dpo ({name})" for name in names]
    open_until_drawn(driver, f"{server}/{path}", *texts, only_first=True)
    settled(driver, server, tmp_path / "curves-of-policies.png")


def test_a_manifest_tells_the_verdict_and_links_to_its_runs(driver, server, held, tmp_path):
    experiment, runs = held
    manifest = next(run_id for name, run_id in runs.items() if name.startswith("manifest"))
    address = f"{server}/#/experiments/{experiment}/runs/{manifest}"
    opened(driver, address, "First.", "points over the baseline", "Report")
    settled(driver, server, tmp_path / "manifest.png")
    assert driver.execute_script("return window.attacked") is None


def test_a_run_with_its_numbers(driver, server, held, tmp_path):
    experiment, runs = held
    address = f"{server}/#/experiments/{experiment}/runs/{runs['train dpo']}"
    opened(driver, address, "train dpo", "Metrics", "final_loss", "rate")
    settled(driver, server, tmp_path / "run.png")


def test_the_curves_of_a_run(driver, server, held, tmp_path):
    experiment, runs = held
    address = f"{server}/#/experiments/{experiment}/runs/{runs['train dpo']}/model-metrics"
    open_until_drawn(driver, address, "train dpo", "seed-0", "mean")
    settled(driver, server, tmp_path / "curves.png")


def test_the_comparison_of_two_manifests(driver, server, held, tmp_path):
    experiment, runs = held
    pair = [run_id for name, run_id in runs.items() if name.startswith("manifest")]
    assert len(pair) == 2
    address = (
        f"{server}/#/compare-runs?runs={json.dumps(pair)}&experiments=[{json.dumps(experiment)}]"
    )
    open_until_drawn(driver, address, "Comparing 2 Runs", "goal", "accuracy/dpo")
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
    run_id = next(run_id for item, run_id in runs.items() if item.startswith(name))
    opened(driver, f"{server}/#/experiments/{experiment}/runs/{run_id}{place}", *shown)
    settled(driver, server, tmp_path / "attack.png")
    assert driver.execute_script("return window.attacked") is None
    assert driver.execute_script(PRESENT) == []
